"""Passes on what a job writes, while it writes it: files that grow, copied to our own stdout and stderr."""

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_LOOK_SECONDS, _SLOW_LOOK_SECONDS = 0.05, 0.25
_CHUNK = 1 << 20
_LONGEST_LINE = 1 << 16
"""Bytes after which a line is passed on before its end."""
KEPT = 32 << 20
"""Bytes at the end of what was passed on that stay on the disk; so does the beginning. A job of days may write more
than the disk has."""
_PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_QUIET_SECONDS = 1.0
"""After which a line without an end, a prompt for instance, is passed on."""


@dataclass(frozen=True)
class Stream:
    """A file that some process of the job writes."""

    path: Path
    is_error: bool
    label: str = ""
    """What each line begins with; where there is none the bytes are passed on as they are."""


class Lines:
    """Puts a label before each line of what one process writes. Of a line that was rewritten by carriage returns the
    last state stays, as on a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label.encode()
        self._open = b""
        self._grew = 0.0

    def feed(self, data: bytes, now: float) -> bytes:
        """The lines that are complete."""
        *complete, last = (self._open + data).split(b"\n")
        if data:
            self._grew = now
        self._open = last
        if len(last) > _LONGEST_LINE or (last and now - self._grew > _QUIET_SECONDS):
            complete.append(last)
            self._open = b""
        return b"".join(self._labelled(line) for line in complete)

    def finish(self) -> bytes:
        """What is left at the end."""
        left, self._open = self._open, b""
        return self._labelled(left) if left else b""

    def _labelled(self, line: bytes) -> bytes:
        return self._label + line.rstrip(b"\r").rpartition(b"\r")[2] + b"\n"


class _Follower:
    """Reads one file as it grows."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self._file: BinaryIO | None = None
        self._lines = Lines(stream.label) if stream.label else None
        self._passed = self._freed = 0

    def read(self, last: bool) -> bytes | None:
        """What may be passed on of a chunk of what is new; None where nothing is."""
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._file = self.stream.path.open("rb")
        data = self._file.read(_CHUNK) if self._file else b""
        self._passed += len(data)
        if self._passed - max(self._freed, _CHUNK) > 2 * KEPT:
            self._free()
        if self._lines is None:
            return data or None
        passed = self._lines.feed(data, time.monotonic())
        if last and not data:
            passed += self._lines.finish()
        return passed if data or passed else None

    def _free(self) -> None:
        """Give the middle of the file back to the disk, where its file system can do that."""
        begin, self._freed = max(self._freed, _CHUNK), self._passed - KEPT
        with contextlib.suppress(OSError, AttributeError), self.stream.path.open("r+b") as file:
            part = ctypes.c_longlong(begin), ctypes.c_longlong(self._freed - begin)
            ctypes.CDLL(None).fallocate(file.fileno(), _PUNCH_HOLE, *part)

    def close(self) -> None:
        if self._file:
            self._file.close()


class Output:
    """Follows the files of a job, as far as they are there by now, in a thread of its own, so that a slow reader of
    ours does not hold up the watch. ``out`` and ``err`` are our stdout and stderr, or stand in for them."""

    def __init__(self, find: Callable[[], Iterable[Stream]], out: BinaryIO, err: BinaryIO) -> None:
        self._find, self._sinks = find, {False: out, True: err}
        self._followers: dict[Path, _Follower] = {}
        self._ends_a_line: dict[BinaryIO, bool] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="job output", daemon=True)
        self._thread.start()

    @property
    def said_something(self) -> bool:
        return bool(self._ends_a_line)

    def finish(self) -> None:
        """Pass on what is left; the last line gets an end where it has none."""
        self._ended.set()
        self._thread.join()
        for sink, ends_a_line in self._ends_a_line.items():
            if not ends_a_line:
                self._write(sink, b"\n")
        for follower in self._followers.values():
            follower.close()

    def _follow(self) -> None:
        pause = _LOOK_SECONDS
        while not self._ended.wait(pause):
            # A job says much or little for a while; looking costs a CPU that a rank may need.
            pause = _LOOK_SECONDS if self._pass_on(last=False) else min(pause * 1.5, _SLOW_LOOK_SECONDS)
        self._pass_on(last=True)

    def _pass_on(self, last: bool) -> bool:
        """Pass on what is new; whether there was anything."""
        grew = False
        for stream in self._find():
            self._followers.setdefault(stream.path, _Follower(stream))
        more = True
        while more:
            # A chunk from each in turn: no rank's flood keeps the others waiting.
            read = [(follower.stream, follower.read(last)) for follower in self._followers.values()]
            for stream, data in read:
                self._write(self._sinks[stream.is_error], data or b"")
            more = any(data is not None for _, data in read)
            grew |= more
        return grew

    def _write(self, sink: BinaryIO, data: bytes) -> None:
        if not data:
            return
        self._ends_a_line[sink] = data.endswith(b"\n")
        with contextlib.suppress(OSError, ValueError):  # whoever read it has gone; the files are kept
            sink.write(data)
            sink.flush()
