"""The progress of a training run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, TextIO, cast

from ddpdoctor.progress import can_show_live
from ddpdoctor.runs.run_progress import Position
from ddpdoctor.table import number

if TYPE_CHECKING:
    from rich.progress import Progress

LINE_SECONDS = 10.0
"""Between plain lines, at most."""
LINE_SHARE = 0.1
"""Of all steps, after which there is a line earlier."""


class TrainingBar:
    """Shows where a run is; a context manager, which leaves the terminal as it was.

    Args:
        quiet: show nothing.
        stream: where to; stderr unless a test looks.
    """

    def __init__(
        self, quiet: bool = False, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._is_live = not quiet and can_show_live(self._stream)
        self._is_plain = not quiet and not self._is_live
        self._live: Progress | None = None
        self._told = (0, self._clock())

    def show(self, position: Position) -> None:
        """The run is here now."""
        if self._is_live:
            self._draw(position)
        elif self._is_plain and self._is_due(position):
            self._told = (position.step.step, self._clock())
            print(describe(position), file=self._stream, flush=True)

    def sink(self, stream: TextIO) -> BinaryIO:
        """Where output goes that belongs to this stream: above the bar, where both are on one terminal."""
        if self._is_live and stream.isatty():
            return cast(BinaryIO, _Above(self))
        return stream.buffer

    def write_above(self, text: str) -> None:
        """Write whole lines above the bar."""
        if self._live:
            self._live.console.out(text.rstrip("\n"), highlight=False)
        else:
            self._stream.write(text)
            self._stream.flush()

    def __enter__(self) -> TrainingBar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def _is_due(self, position: Position) -> bool:
        step, told = self._told
        if position.total and (
            position.step.step - step >= position.total * LINE_SHARE or position.step.step == position.total
        ):
            return True
        return self._clock() - told >= LINE_SECONDS

    def _draw(self, position: Position) -> None:
        if self._live is None:
            self._live = _new_bar(self._stream)
        self._live.update(
            self._live.task_ids[0],
            total=position.total,
            completed=position.step.step,
            description=describe(position),
        )


class _Above:
    """Takes the bytes of a job's output and writes them above the bar."""

    def __init__(self, bar: TrainingBar) -> None:
        self._bar = bar

    def write(self, data: bytes) -> None:
        self._bar.write_above(data.decode(errors="backslashreplace"))

    def flush(self) -> None:
        """Nothing is held back."""


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


def _new_bar(stream: TextIO) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    bar = Progress(
        BarColumn(bar_width=20),
        TextColumn("{task.description}", markup=False),
        console=Console(file=stream),
        redirect_stdout=False,
        redirect_stderr=False,
    )
    bar.add_task("")
    bar.start()
    return bar
