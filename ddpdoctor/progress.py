"""Says on stderr how far a command is: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from typing import TYPE_CHECKING, BinaryIO, TextIO, TypeVar, cast

from ddpdoctor.text import shorten

if TYPE_CHECKING:  # rich takes longer to import than all of ddpdoctor, and only a terminal needs it
    from rich.progress import Progress as LiveLine

_BESIDE_THE_TEXT = len("| 0:00:00  ^C")
"""What else the line has to hold; were it full, the echo of Ctrl-C would begin another, which nothing erases."""
_Self = TypeVar("_Self", bound="Progress")


class Progress:
    """The progress of one command, on stderr but for tests; a context manager that leaves the terminal as it was."""

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        terminal = self._stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
        self.is_live = terminal and not quiet
        """Whether there is a line that is written over."""
        self._live: LiveLine | None = None
        self._stage, self._began = "", time.monotonic()
        self._lock, self._in_a_line = threading.RLock(), False

    def stage(self, text: str, *, cut_at_end: bool = False) -> None:
        """What begins now: ``examining this host``."""
        if self._quiet or (text == self._stage and (self._live or not self.is_live)):
            return
        self._stage = text
        if not self.is_live:
            self._print(text)
            return
        with self._lock:
            if self._in_a_line:
                return
            self._live = self._live or self._start_live_line()
            room = self._live.console.width - _BESIDE_THE_TEXT
            self._live.update(self._live.task_ids[0], description=shorten(text, room, at_end=cut_at_end))

    def _print(self, text: str) -> None:
        try:
            print(text, file=self._stream, flush=True)
        except OSError:
            self._quiet = True  # whoever read it has gone, and the report does not depend on it

    def hide(self) -> None:
        """Take the live line away until something new is said: what is written now is somebody else's."""
        with self._lock:
            if self._live:
                self._live.stop()
                self._live = None

    def sink(self, stream: TextIO) -> BinaryIO:
        """Where output goes that belongs to this stream. The live line makes room for it on a terminal, and in a pipe,
        which may end on the same one (``| tee log``)."""
        if self.is_live and (stream.isatty() or stat.S_ISFIFO(os.fstat(stream.fileno()).st_mode)):
            return cast(BinaryIO, _Sink(self, stream))
        return stream.buffer

    def write(self, data: bytes, stream: TextIO) -> None:
        """Write what is somebody else's in place of the live line, which returns behind a whole line."""
        with self._lock:
            self.hide()
            stream.buffer.write(data)
            stream.buffer.flush()
            self._in_a_line = not data.endswith(b"\n")

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def _start_live_line(self) -> LiveLine:
        from rich.console import Console
        from rich.progress import Progress as LiveLine
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        live = LiveLine(
            SpinnerColumn("line"),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            console=Console(file=self._stream),
            transient=True,  # the line is gone when the report comes
            redirect_stdout=False,
            get_time=time.monotonic,
        )
        live.add_task("", start=False)
        live.tasks[0].start_time = self._began
        live.start()
        return live


class _Sink:
    """Takes the bytes of a job's output and writes them where the live line is."""

    def __init__(self, progress: Progress, stream: TextIO) -> None:
        self._progress, self._stream = progress, stream

    def write(self, data: bytes) -> None:
        self._progress.write(data, self._stream)

    def flush(self) -> None:
        """Nothing is held back."""
