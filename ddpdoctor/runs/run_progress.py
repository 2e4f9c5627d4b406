"""How far a run is, read while it writes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor.files import GrowingFile, read_json
from ddpdoctor.runs.run_reader import METRICS, RUN, parse_step
from ddpdoctor.runs.stored_run import Step


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
        self._metrics = GrowingFile(
            folder / METRICS, skip=True
        )  # what an earlier part of the run wrote is past
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
        steps = map(parse_step, reversed(self._metrics.new_lines()))
        return next((step for step in steps if step), None)

    def _planned(self) -> int | None:
        run = read_json(self._folder / RUN)
        planned = run.get("steps") if isinstance(run, dict) else None
        return planned if isinstance(planned, int) and planned > 0 else None

    def _left(self, step: int, now: float) -> float | None:
        if self._total is None or self._first is None or step == self._first[0]:
            return None
        begun, then = self._first
        return max(0.0, (self._total - step) * (now - then) / (step - begun))
