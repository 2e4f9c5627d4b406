"""Says on stderr what is being examined: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

from ddpdoctor.text import shorten

if TYPE_CHECKING:  # rich takes longer to import than all of ddpdoctor, and only a terminal needs it
    from rich.progress import Progress as LiveLine

_BESIDE_THE_TEXT = len("| 0:00:00  ^C")
"""What else the line has to hold; were it full, the echo of Ctrl-C would begin another, which nothing erases."""


def can_show_live(stream: TextIO) -> bool:
    """Whether it is a terminal on which a line can be written over."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


class Progress:
    """The progress of one command; a context manager, which leaves the terminal as it was.

    Args:
        quiet: say nothing.
        stream: where to; stderr unless a test looks.
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._is_live = can_show_live(self._stream)
        self._live: LiveLine | None = None
        self._stage = ""

    def stage(self, text: str) -> None:
        """What begins now: ``examining this host``."""
        if self._quiet or text == self._stage:
            return
        self._stage = text
        if self._is_live:
            self._show(text)
        else:
            self._print(text)

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

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hide()

    def _show(self, text: str) -> None:
        if self._live is None:
            self._live = _start_live_line(self._stream)
        room = self._live.console.width - _BESIDE_THE_TEXT
        self._live.update(self._live.task_ids[0], description=shorten(text, room))


def _start_live_line(stream: TextIO) -> LiveLine:
    from rich.console import Console
    from rich.progress import Progress as LiveLine
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    live = LiveLine(
        SpinnerColumn("line"),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(file=stream),
        transient=True,  # the line is gone when the report comes
        redirect_stdout=False,
    )
    live.add_task("")
    live.start()
    return live
