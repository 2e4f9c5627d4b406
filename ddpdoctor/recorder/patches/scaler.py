"""GradScaler and clipping: its scale, whose gradients it has unscaled, steps left out, and norms that were found."""

from __future__ import annotations

import functools
import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import GeneratorType
from typing import Any

from ..digest import few, is_plain, unseen
from ..events.updates import Clip
from ..patch import Args, Kwargs, guarded, leave_out, watch
from ..session import Session
from ..training import Training, TrainingPart, parameters_of

_MODULES = ("torch.nn.utils.clip_grad", "torch.nn.utils")
_LIMITS = {"clip_grad_norm_": "max_norm", "clip_grad_norm": "max_norm", "clip_grad_value_": "clip_value"}
_UPDATES = 8
"""From the start."""
_GRADIENTS = 4
"""Of each optimizer, the largest."""
_SAME = 1e-3
_SMALL = 0.01
"""Of the scale; a limit that was multiplied by the scale, too, is larger."""


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
        scaler = begun[0]
        self._in_use.setdefault(id(scaler), (weakref.ref(scaler), []))
        if (scale := self._scale(scaler)) is not None:
            self.training.scales.append(scale)

    def unscaling(self, args: Args, kwargs: Kwargs) -> Any:
        if (begun := self.begin(args, kwargs)) is not None and begun[1] is not None and self.session.detailed:
            self.by_hand.unscaling(begun[1], self._scale(begun[0]))
        return begun

    def unscaled(self, begun: Any, _: Any, error: BaseException | None) -> None:
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
        self._in_use.pop(id(begun[0]), None)
        self.by_hand.forget()

    def stage(self, parameters: Sequence[Any]) -> dict[str, Any]:
        """The stage that these parameters' gradients are in; empty where no scaler is in use."""
        living = [(scaler, done) for ref, done in self._in_use.values() if (scaler := ref()) is not None]
        if not living:
            return {}
        wanted = {id(parameter) for parameter in parameters}
        for scaler, done in living:
            held = (parameters_of(optimizer) for ref in done if (optimizer := ref()) is not None)
            if any(id(parameter) in wanted for own in held for parameter in own):
                return {"stage": "UNSCALED", "scale": self._scale(scaler)}
        return {"stage": "READY", "scale": self._scale(living[-1][0])}

    def _scale(self, scaler: Any) -> float | None:
        """The scale; None on a device while nothing is written down, since reading it would wait."""
        scale = getattr(scaler, "_scale", None)
        if scale is None or (scale.device.type != "cpu" and not self.session.detailed):
            return None
        with unseen(self.torch):
            return float(scale)


def install(session: Session) -> None:
    """Watch scale, unscale_, step and update; and clip_grad_norm_ and clip_grad_value_ of torch.nn.utils."""
    scalers = Scalers.of(session)
    for name, begin, end in (
        ("scale", scalers.begin, scalers.scaled),
        ("unscale_", scalers.unscaling, scalers.unscaled),
        ("step", scalers.stepping, scalers.stepped),
        ("update", scalers.begin, scalers.updated),
    ):
        session.patch(session.torch.amp.GradScaler, name, watch(session.torch, begin, end))
    for name, limit in _LIMITS.items():
        session.patch_function(_MODULES, name, functools.partial(_watch_clip, session, limit))


def _watch_clip(session: Session, limit: str, original: Callable[..., Any]) -> Callable[..., Any]:
    training, compiler = Training.of(session), session.torch.compiler
    is_traced, is_compiling = compiler.is_dynamo_compiling, compiler.is_compiling

    @functools.wraps(original)
    def clip(parameters: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if is_traced() or not session.detailed or is_compiling():
                return original(parameters, *args, **kwargs)
            begin = time.monotonic()
            given = [parameters] if isinstance(parameters, session.torch.Tensor) else parameters
            if isinstance(parameters, GeneratorType):
                given = []
                parameters = _noting(parameters, given)  # it can be read only once
            elif not isinstance(given, list | tuple):
                given = parameters = list(parameters)
            result = original(parameters, *args, **kwargs)
            _tell(training, begin, given, args[0] if args else kwargs.get(limit), result)
            Scalers.of(session).by_hand.forget()  # what was told of it is not to be found again
            return result
        except BaseException as passing:
            leave_out(passing)
            raise

    return clip


def _noting(parameters: Iterator[Any], noted: list[Any]) -> Iterator[Any]:
    for parameter in parameters:
        noted.append(parameter)
        yield parameter


@guarded
def _tell(training: Training, begin: float, given: Sequence[Any], limit: Any, norm: Any) -> None:
    session = training.session
    clip = Clip(begin, session.here(), **Scalers.of(session).stage(given))
    clip.keys, clip.backwards = len(given), training.backwards
    with unseen(training.torch):
        # To read a sharded norm would be a collective.
        sharded = isinstance(norm, training.torch.Tensor) and not is_plain(training.torch, norm)
        clip.norm = None if norm is None or sharded else float(norm)
        clip.limit = None if limit is None else float(limit)
    training.session.event(clip)


class HandClips(TrainingPart):
    """Clipping by hand of gradients that still carry a GradScaler's factor, between their backward and unscale_.

    No function of torch does it, so it is known by what it leaves: in between all gradients were multiplied by one
    factor, another in each step, and their norm is the same afterwards.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._after_backward: dict[int, tuple[weakref.ref[Any], tuple[float, ...]]] = {}
        """Values of gradients, by the parameter's id."""
        self._last: dict[int, tuple[float, float]] = {}
        """The factor and the norm after it, by the optimizer's id, where all was multiplied by one factor."""

    @guarded
    def after_backward(self) -> None:
        """A loss with a scale was taken backward."""
        if self.session.steps >= _UPDATES:
            return
        with unseen(self.torch):
            for optimizer in self.training.optimizers:
                for parameter in _largest(optimizer):
                    some = weakref.ref(parameter), few(parameter.grad)
                    self._after_backward[id(parameter)] = some

    @guarded
    def unscaling(self, optimizer: Any, scale: float | None) -> None:
        """The gradients of an optimizer are about to be divided by the scale."""
        if not self._after_backward or scale is None:
            return
        with unseen(self.torch):
            known = [(self._after_backward.get(id(p)), few(p.grad)) for p in _largest(optimizer)]
            factor = _factor_of([(before[1], now) for before, now in known if before is not None])
            last = self._last.pop(id(optimizer), None)
            if factor is None or not 0 < factor < 1 - _SAME:
                return
            norm = _norm_of(optimizer)
        self._last[id(optimizer)] = factor, norm
        if last is None or abs(factor / last[0] - 1) < _SAME or abs(norm / last[1] - 1) > _SAME:
            return
        if norm < _SMALL * scale:
            clip = Clip(
                time.monotonic(),
                self.session.here(),
                norm=norm / factor,
                limit=norm,
                stage="READY",
                scale=scale,
                keys=len(list(parameters_of(optimizer))),
                backwards=self.training.backwards,
            )
            self.session.event(clip)

    def forget(self) -> None:
        self._after_backward.clear()


def _largest(optimizer: Any) -> list[Any]:
    dense = [p for p in parameters_of(optimizer) if p.grad is not None and not p.grad.is_sparse]
    return sorted(dense, key=lambda p: -p.numel())[:_GRADIENTS]


def _factor_of(pairs: list[tuple[tuple[float, ...], tuple[float, ...]]]) -> float | None:
    """What all values were multiplied by; None where that is not one factor."""
    before = [value for first, _ in pairs for value in first]
    after = [value for _, second in pairs for value in second]
    size = math.fsum(value * value for value in before)
    if not size or not math.isfinite(size) or not all(map(math.isfinite, after)):
        return None
    factor = math.fsum(a * b for a, b in zip(after, before, strict=True)) / size
    rest = math.fsum((a - factor * b) ** 2 for a, b in zip(after, before, strict=True))
    return factor if math.sqrt(rest) <= _SAME * abs(factor) * math.sqrt(size) else None


def _norm_of(optimizer: Any) -> float:
    norms = [p.grad.norm() for p in parameters_of(optimizer) if p.grad is not None]
    return math.sqrt(math.fsum(float(norm) ** 2 for norm in norms))
