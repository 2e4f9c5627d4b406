"""GradScaler: its scale, which optimizers' gradients it has unscaled, and steps that it left out."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from ..digest import unseen
from ..hand_clip import HandClips
from ..patch import Args, Kwargs, watch
from ..session import Session
from ..training import TrainingPart, parameters_of


class Scalers(TrainingPart):
    """The scalers in use, from their first scale() to their update()."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.by_hand = HandClips(session)
        self._in_use: dict[int, tuple[weakref.ref[Any], list[weakref.ref[Any]]]] = {}

    def begin(self, args: Args, kwargs: Kwargs) -> Any:
        """A method of a scaler is called; None of one that is not enabled."""
        optimizer = args[1] if len(args) > 1 else kwargs.get("optimizer")
        return (args[0], optimizer) if args[0].is_enabled() else None

    def scaled(self, begun: Any, *_: Any) -> None:
        """A loss was scaled."""
        scaler = begun[0]
        self._in_use.setdefault(id(scaler), (weakref.ref(scaler), []))
        scale = self._scale(scaler)
        if scale is not None:
            self.training.scales.append(scale)

    def unscaling(self, args: Args, kwargs: Kwargs) -> Any:
        """The gradients of an optimizer are about to be unscaled."""
        begun = self.begin(args, kwargs)
        if begun is not None and begun[1] is not None and self.session.detailed:
            self.by_hand.unscaling(begun[1], self._scale(begun[0]))
        return begun

    def unscaled(self, begun: Any, _: Any, error: BaseException | None) -> None:
        """They were."""
        scaler, optimizer = begun
        if error is None and optimizer is not None:
            _, done = self._in_use.setdefault(id(scaler), (weakref.ref(scaler), []))
            done.append(weakref.ref(optimizer))

    def stepping(self, args: Args, kwargs: Kwargs) -> Any:
        """An optimizer is about to step, unless a gradient is not finite."""
        begun = self.begin(args, kwargs)
        return begun and (*begun, self.training.updated, self.session.steps)

    def stepped(self, begun: Any, _: Any, error: BaseException | None) -> None:
        """Where no optimizer stepped in it, a gradient was not finite."""
        _, optimizer, updated, steps = begun
        if error is None and not updated and self.session.steps == steps:
            self.session.shared["optimizers"].skipped(optimizer)

    def updated(self, begun: Any, *_: Any) -> None:
        """The iteration is over."""
        self._in_use.pop(id(begun[0]), None)
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
        with unseen(self.torch):
            return float(scale)


def _holds(optimizer: Any, wanted: set[int]) -> bool:
    return optimizer is not None and any(id(p) in wanted for p in parameters_of(optimizer))


def install(session: Session) -> None:
    """Watch scale, unscale_, step and update."""
    scalers = Scalers.of(session)
    for name, begin, end in (
        ("scale", scalers.begin, scalers.scaled),
        ("unscale_", scalers.unscaling, scalers.unscaled),
        ("step", scalers.stepping, scalers.stepped),
        ("update", scalers.begin, scalers.updated),
    ):
        session.patch(session.torch.amp.GradScaler, name, watch(session.torch, begin, end))
