"""Learning-rate schedulers: the outermost calls of step that the script makes."""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..events.updates import SchedulerStep
from ..patch import IN_FULL, watch
from ..session import Session
from ..training import TrainingPart

_OFTEN = 0.1
"""Seconds; steps of a scheduler that come as often are written down with detailed training steps only."""

_ACCELERATE = "accelerate.scheduler"
"""The module that steps a scheduler once for each rank, since its length was counted before the data was divided."""
_NEAR = 8
"""Frames of ours and of torch between a framework's call and here, at most."""


class _Schedulers(TrainingPart):
    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.known: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.depth = 0
        self.last: dict[int, float] = {}
        self.watched = watch(session.torch, self._begin_step, self._end_step, self._step_briefly)

    def patch_class(self, kind: type) -> None:
        """Watch ``step`` where this class or one of its bases defines it."""
        for base in kind.__mro__:
            if "step" in vars(base):
                self.session.patch(base, "step", self.watched)

    def _step_briefly(
        self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.depth or not self.training.quiet:
            return IN_FULL
        number, now = self._number(args[0]), time.monotonic()
        if now - self.last.get(number, 0.0) >= _OFTEN:
            return IN_FULL
        self.last[number] = now
        self.depth += 1
        try:
            return original(*args, **kwargs)
        finally:
            self.depth -= 1

    def _begin_step(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.depth += 1
        return args, kwargs

    def _end_step(self, begun: Any, _: Any, error: BaseException | None) -> None:
        self.depth -= 1
        args, kwargs = begun
        if self.depth or error is not None:
            return
        self._tell(args[0], args[1] if len(args) > 1 else kwargs.get("metrics"))

    def _tell(self, scheduler: Any, metric: Any) -> None:
        number = self._number(scheduler)
        now = time.monotonic()
        before, self.last[number] = self.last.get(number, 0.0), now
        if not self.session.detailed and now - before < _OFTEN:
            return
        plateau = (
            "metrics" in type(scheduler).step.__code__.co_varnames or "Plateau" in type(scheduler).__name__
        )
        step = SchedulerStep(
            number,
            self.session.here(),
            type(scheduler).__name__,
            _number(self.torch, metric) if plateau else None,
            now,
            _framework(sys._getframe(1)),
            self.session.steps - 1,
            epoch if type(epoch := getattr(scheduler, "last_epoch", None)) is int else None,
        )
        self.session.event(step)

    def _number(self, scheduler: Any) -> int:
        known = self.known.get(id(scheduler))
        if known is None or known[0]() is not scheduler:
            known = self.known[id(scheduler)] = weakref.ref(scheduler), len(self.known)
        return known[1]

    def begin_made(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A constructor: the steps in it are its own, and its class may have a step of its own."""
        self.patch_class(type(args[0]))
        self.depth += 1
        return True

    def end_made(self, *_: Any) -> None:
        """The constructor is over."""
        self.depth -= 1


def _framework(frame: FrameType | None) -> str | None:
    """The framework on whose own account a scheduler is stepped; None where the script steps it."""
    for _ in range(_NEAR):
        if frame is None or frame.f_globals.get("__name__") == _ACCELERATE:
            return "accelerate" if frame else None
        frame = frame.f_back
    return None


def _number(torch: Any, metric: Any) -> float | None:
    if isinstance(metric, torch.Tensor) and (metric.numel() != 1 or metric.device.type == "meta"):
        return None
    try:
        return float(metric)
    except (TypeError, ValueError):
        return None


def install(session: Session) -> None:
    """Watch the schedulers of torch, and classes derived from them once they are made."""
    schedulers = _Schedulers(session)
    module = session.torch.optim.lr_scheduler
    base = module.LRScheduler
    kinds = [var for var in vars(module).values() if isinstance(var, type) and issubclass(var, base)]
    made = watch(session.torch, schedulers.begin_made, schedulers.end_made)
    for kind in kinds:
        schedulers.patch_class(kind)
        if "__init__" in vars(kind):
            session.patch(kind, "__init__", made)
    session.patch(base, "_initial_step", made)
