"""Says on stderr how far a command is: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, BinaryIO, TextIO, TypeVar, cast

from ddpdoctor.text import shorten

if TYPE_CHECKING:  # rich takes longer to import than all of ddpdoctor, and only a terminal needs it
    from rich.progress import Progress as LiveLine

_BAR = 20
_BESIDE_THE_TEXT = {True: _BAR + len("  ^C"), False: len("| 0:00:00  ^C")}
"""What else the line has to hold, with and without a bar; were it full, the echo of Ctrl-C would begin another, which
nothing erases."""
_Self = TypeVar("_Self", bound="Progress")


class Progress:
    """The progress of one command; a context manager, which leaves the terminal as it was.

    Args:
        quiet: say nothing.
        stream: where to; stderr unless a test looks.
        has_bar: whether the live line has a bar, and stays at the end.
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None, *, has_bar: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet, self._has_bar = quiet, has_bar
        terminal = self._stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self.is_live = terminal and not quiet
        """Whether there is a line that is written over."""
        self._live: LiveLine | None = None
        self._stage = ""

    def stage(self, text: str, completed: int = 0, total: int | None = None) -> None:
        """What begins now: ``examining this host``; with a bar, how much of it is done."""
        if self._quiet or text == self._stage:
            return
        self._stage = text
        if not self.is_live:
            self._print(text)
            return
        self._live = self._live or _start_live_line(self._stream, self._has_bar)
        shown = shorten(text, self._live.console.width - _BESIDE_THE_TEXT[self._has_bar])
        self._live.update(self._live.task_ids[0], description=shown, completed=completed, total=total)

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._stream, flush=True)
        except OSError:
            self._quiet = True  # whoever read it has gone, and the report does not depend on it

    def hide(self) -> None:
        """Take the live line away until something new is said: what is written now is somebody else's."""
        if self._live:
            self._live.stop()
            self._live = None

    def sink(self, stream: TextIO) -> BinaryIO:
        """Where output goes that belongs to this stream: above the live line, where both are on one terminal."""
        return cast(BinaryIO, _Above(self)) if self.is_live and stream.isatty() else stream.buffer

    def write_above(self, text: str) -> None:
        """Write whole lines above the live line."""
        if self._live:
            self._live.console.out(text.rstrip("\n"), highlight=False)
        else:
            self._stream.write(text)
            self._stream.flush()

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()


class _Above:
    """Takes the bytes of a job's output and writes them above the live line."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def write(self, data: bytes) -> None:
        self._progress.write_above(data.decode(errors="backslashreplace"))

    def flush(self) -> None:
        """Nothing is held back."""


def _start_live_line(stream: TextIO, has_bar: bool) -> LiveLine:
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as LiveLine

    live = LiveLine(
        *([BarColumn(_BAR)] if has_bar else [SpinnerColumn("line"), TimeElapsedColumn()]),
        TextColumn("{task.description}", markup=False),
        console=Console(file=stream),
        transient=not has_bar,  # the line is gone when the report comes
        redirect_stdout=False,
        redirect_stderr=not has_bar,
    )
    live.add_task("")
    live.start()
    return live
