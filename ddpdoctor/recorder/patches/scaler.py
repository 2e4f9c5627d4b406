"""GradScaler: its scale, which optimizers' gradients it has unscaled, and steps that it left out."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from ..digest import unseen
from ..hand_clip import HandClips
from ..patch import watch
from ..session import Session
from ..training import Training


class Scalers:
    """The scalers in use, from their first scale() to their update()."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.training = Training.of(session)
        self.by_hand = HandClips(session)
        self._in_use: dict[int, tuple[weakref.ref[Any], list[weakref.ref[Any]]]] = {}

    @classmethod
    def of(cls, session: Session) -> Scalers:
        """The session's own."""
        return session.part("scalers", cls)

    def scaled(self, scaler: Any) -> None:
        """A loss was scaled."""
        self._in_use.setdefault(id(scaler), (weakref.ref(scaler), []))
        scale = self._scale(scaler)
        if scale is not None:
            self.training.scales.append(scale)

    def unscaling(self, scaler: Any, optimizer: Any) -> None:
        """The gradients of an optimizer are about to be unscaled."""
        if optimizer is not None and self.session.detailed:
            self.by_hand.unscaling(optimizer, self._scale(scaler))

    def unscaled(self, scaler: Any, optimizer: Any) -> None:
        """The gradients of an optimizer were unscaled."""
        _, done = self._in_use.setdefault(id(scaler), (weakref.ref(scaler), []))
        done.append(weakref.ref(optimizer))

    def updated(self, scaler: Any) -> None:
        """The iteration is over."""
        self._in_use.pop(id(scaler), None)
        self.by_hand.forget()

    def stage(self, parameters: Sequence[Any]) -> dict[str, Any]:
        """The stage that these parameters' gradients are in; empty where no scaler is in use."""
        living = [(scaler, done) for ref, done in self._in_use.values() if (scaler := ref()) is not None]
        if not living:
            return {}
        wanted = {id(parameter) for parameter in parameters}
        for scaler, done in living:
            if any(_holds(optimizer(), wanted) for optimizer in done):
                return {"stage": "UNSCALED", "scale": self._scale(scaler)}
        return {"stage": "READY", "scale": self._scale(living[-1][0])}

    def _scale(self, scaler: Any) -> float | None:
        """The scale; None on a device while nothing is written down, since reading it would wait."""
        scale = getattr(scaler, "_scale", None)
        if scale is None or (scale.device.type != "cpu" and not self.session.detailed):
            return None
        with unseen(self.session.torch):
            return float(scale)


def _holds(optimizer: Any, wanted: set[int]) -> bool:
    return optimizer is not None and any(
        id(p) in wanted for group in optimizer.param_groups for p in group["params"]
    )


def install(session: Session) -> None:
    """Watch scale, unscale_, step and update."""
    scalers, torch = Scalers.of(session), session.torch
    kind = torch.amp.GradScaler
    session.patch(kind, "scale", watch(torch, _if_enabled, lambda begun, *_: scalers.scaled(begun[0])))
    unscale = watch(torch, functools.partial(_unscaling, scalers), functools.partial(_unscaled, scalers))
    session.patch(kind, "unscale_", unscale)
    session.patch(kind, "update", watch(torch, _if_enabled, lambda begun, *_: scalers.updated(begun[0])))
    begin = functools.partial(_begin_step, scalers)
    session.patch(kind, "step", watch(torch, begin, functools.partial(_end_step, scalers)))


def _if_enabled(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    optimizer = args[1] if len(args) > 1 else kwargs.get("optimizer")
    return (args[0], optimizer) if args[0].is_enabled() else None


def _unscaling(scalers: Scalers, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    begun = _if_enabled(args, kwargs)
    if begun is not None:
        scalers.unscaling(*begun)
    return begun


def _unscaled(scalers: Scalers, begun: Any, _: Any, error: BaseException | None) -> None:
    scaler, optimizer = begun
    if error is None and optimizer is not None:
        scalers.unscaled(scaler, optimizer)


def _begin_step(scalers: Scalers, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    begun = _if_enabled(args, kwargs)
    return None if begun is None else (*begun, scalers.training.updated, scalers.session.steps)


def _end_step(scalers: Scalers, begun: Any, _: Any, error: BaseException | None) -> None:
    """Where no optimizer stepped in it, a gradient was not finite."""
    _, optimizer, updated, steps = begun
    if error is None and not updated and scalers.session.steps == steps:
        scalers.session.shared["optimizers"].skipped(optimizer)
