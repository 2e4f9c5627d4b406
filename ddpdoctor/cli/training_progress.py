"""The progress of a training run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

from ddpdoctor.progress import Progress
from ddpdoctor.runs.run_progress import Position
from ddpdoctor.table import number

LINE_SECONDS = 10.0
"""Between plain lines, at most."""
LINE_SHARE = 0.1
"""Of all steps, after which there is a line earlier."""


class TrainingProgress(Progress):
    """Shows where a run is."""

    def __init__(
        self, quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(quiet, stream, has_bar=True)
        self._clock = clock
        self._last_shown = (0, clock())

    def show(self, position: Position) -> None:
        """The run is here now."""
        step = position.step.step
        if self.is_live or self._is_due(step, position.total):
            self._last_shown = (step, self._clock())
            self.stage(describe(position), step, position.total)

    def _is_due(self, step: int, total: int | None) -> bool:
        last_step, last_time = self._last_shown
        if total and (step - last_step >= total * LINE_SHARE or step == total):
            return True
        return self._clock() - last_time >= LINE_SECONDS


def describe(position: Position) -> str:
    """``step 40 of 200, loss 3.21, 812 samples/s, 0:12 left``."""
    step = position.step
    parts = [f"step {step.step}" + (f" of {position.total}" if position.total else "")]
    if step.loss is not None:
        parts.append(f"loss {number(step.loss)}")
    if step.samples_per_second is not None:
        parts.append(f"{number(step.samples_per_second)} samples/s")
    if position.seconds_left is not None:
        minutes, seconds = divmod(round(position.seconds_left), 60)
        hours, minutes = divmod(minutes, 60)
        clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        parts.append(f"{clock} left")
    return ", ".join(parts)
