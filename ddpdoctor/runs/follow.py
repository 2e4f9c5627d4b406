"""How far a run is, read while it writes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.runs.reader import METRICS, RUN, parse_step
from ddpdoctor.runs.run import Step


@dataclass(frozen=True)
class Position:
    """Where a run is."""

    step: Step
    """The last one that was logged."""
    total: int | None
    """Steps that are planned; None where nobody knows."""
    seconds_left: float | None
    """Judged by the speed so far; None at the first step."""


class Follower:
    """Follows one run folder.

    Args:
        folder: need not be there yet.
        clock: seconds that pass.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._offset = self._size()  # what an earlier part of the run wrote is past
        self._first: tuple[int, float] | None = None
        self._total: int | None = None

    def look(self) -> Position | None:
        """Where the run is now; None where it logged no further step since the last look."""
        step = self._newest()
        if step is None:
            return None
        now = self._clock()
        if self._first is None or step.step <= self._first[0]:
            self._first = (step.step, now)
        if self._total is None:
            self._total = self._planned()
        return Position(step, self._total, self._left(step.step, now))

    def _newest(self) -> Step | None:
        if self._size() < self._offset:
            self._offset = 0  # a run that goes on from a checkpoint has taken lines away
        try:
            with (self._folder / METRICS).open("rb") as file:
                file.seek(self._offset)
                complete, _, _ = file.read().rpartition(b"\n")
        except OSError:
            return None
        if not complete:
            return None
        self._offset += len(complete) + 1
        steps = (parse_step(line) for line in complete.splitlines())
        return next((step for step in reversed(list(steps)) if step), None)

    def _size(self) -> int:
        try:
            return (self._folder / METRICS).stat().st_size
        except OSError:
            return 0

    def _planned(self) -> int | None:
        try:
            planned = json.loads((self._folder / RUN).read_bytes()).get("steps")
        except (OSError, ValueError, AttributeError):
            return None
        return planned if isinstance(planned, int) and planned > 0 else None

    def _left(self, step: int, now: float) -> float | None:
        if self._total is None or self._first is None or step == self._first[0]:
            return None
        begun, then = self._first
        return max(0.0, (self._total - step) * (now - then) / (step - begun))
