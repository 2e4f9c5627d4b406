"""Clipping by hand of gradients that still carry a GradScaler's factor.

No function of torch does it, so it is known by what it leaves: between the backward and unscale_ all gradients were
multiplied by one factor, another in each step, and their norm is the same afterwards.
"""

from __future__ import annotations

import math
import time
import weakref
from typing import Any

from .digest import few, unseen
from .events.updates import Clip
from .guard import guarded
from .session import Session
from .training import TrainingPart, parameters_of

_UPDATES = 8
"""From the start."""
_GRADIENTS = 4
"""Of each optimizer, the largest."""
_SAME = 1e-3
_SMALL = 0.01
"""Of the scale; a limit that was multiplied by the scale, too, is larger."""


class HandClips(TrainingPart):
    """Gradients between their backward and unscale_."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._after_backward: dict[int, tuple[weakref.ref[Any], list[float]]] = {}
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
            pairs = [(before[1], now) for before, now in known if before is not None]
            factor = _factor(pairs)
            last = self._last.pop(id(optimizer), None)
            if factor is None or not 0 < factor < 1 - _SAME:
                return
            norm = _norm(optimizer)
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
        """The iteration is over."""
        self._after_backward.clear()


def _largest(optimizer: Any) -> list[Any]:
    dense = [p for p in parameters_of(optimizer) if p.grad is not None and not p.grad.is_sparse]
    return sorted(dense, key=lambda p: -p.numel())[:_GRADIENTS]


def _factor(pairs: list[tuple[list[float], list[float]]]) -> float | None:
    """What all values were multiplied by; None where that is not one factor."""
    before = [value for first, _ in pairs for value in first]
    after = [value for _, second in pairs for value in second]
    size = math.fsum(value * value for value in before)
    if not size or not math.isfinite(size) or not all(map(math.isfinite, after)):
        return None
    factor = math.fsum(a * b for a, b in zip(after, before, strict=True)) / size
    rest = math.fsum((a - factor * b) ** 2 for a, b in zip(after, before, strict=True))
    return factor if math.sqrt(rest) <= _SAME * abs(factor) * math.sqrt(size) else None


def _norm(optimizer: Any) -> float:
    norms = [p.grad.norm() for p in parameters_of(optimizer) if p.grad is not None]
    return math.sqrt(math.fsum(float(norm) ** 2 for norm in norms))
