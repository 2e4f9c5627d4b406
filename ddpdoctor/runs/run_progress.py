"""How far a run is, read while it writes; and the note in its folder that it was stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from ddpdoctor.files import GrowingFile, read_json, write_whole
from ddpdoctor.runs.run_reader import DIED, METRICS, RUN, Step, parse_step, read_run


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


def note_stopped(folder: Path) -> None:
    """Let it say so, if it has begun, is not over, and no process has it any more."""
    path = folder / RUN
    with suppress(OSError, ValueError):
        if read_run(folder).status == DIED:
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            description = {**json.loads(path.read_text()), "status": "stopped", "finished": now}
            write_whole(path, json.dumps(description, indent=2) + "\n")
