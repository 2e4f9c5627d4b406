"""Writes events to this process's own file, which is mapped into memory: an event that was written survives any end of
the process, an abort in C++, SIGKILL and os._exit among them."""

from __future__ import annotations

import _thread
import contextlib
import mmap
import os
import time
import zlib
from array import array
from collections import deque
from collections.abc import Iterable
from typing import Any

from .events.data import Integers

FLUSH_SECONDS = 0.25
"""How long an event may stay in memory where the file cannot be mapped."""
_LARGEST_BUFFER = 4000
"""Events that may; more are written at once."""
LARGEST_RECORD = 64 << 20
"""Bytes after which a process writes its last words only; days of evaluation can come to it, training does not."""
_FIRST, _LARGEST = 64 << 10, 1 << 20
"""Bytes that are mapped at once: at the beginning, and of a long record."""


class Writer:
    """A file of JSON lines, one a process, made with its first event.

    Each line goes into the mapped part with its newline last, so one that is cut short has none. What follows the
    last line until the end of the file is zeros. Where there is no room for that part, or no mapping, lines are
    appended to the file every quarter of a second.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.header = ""
        """The first line of the file."""
        self.began = 0
        """What tells this process from one that has its number later."""
        self.ticks: list[Any] = []
        """Functions that the background thread calls between flushes."""
        self._window = _FIRST
        self.after_fork()

    def after_fork(self) -> None:
        """In a child: what the parent has in memory is the parent's, and so is its file."""
        self._lock = _thread.allocate_lock()
        self._holder = 0
        """The thread that has the lock."""
        self._lines: deque[str] = deque()
        self._map: mmap.mmap | None = None
        self._mapped = 0
        """Where in the file the mapped part begins."""
        self._file = -1
        """Where lines are appended because the file cannot be mapped."""
        self._end = 0
        """Of what was written."""
        self._pid = os.getpid()

    @property
    def name(self) -> str:
        """What files of this process begin with, in the folder."""
        return f"{self._pid}-{self.began}"

    def write(self, line: str, *, now: bool = False) -> None:
        """Append a line; ``now`` where it is to be written however much there is, before this returns."""
        if self._end > LARGEST_RECORD and not now:
            return
        self._lines.append(line)
        if self._file < 0 or now or len(self._lines) > _LARGEST_BUFFER:
            self.flush()

    def flush(self) -> None:
        """Bring what is in memory to the file."""
        # What interrupts this thread while it writes, as a signal's handler does, leaves its lines to it.
        if self._holder == _thread.get_ident():
            return
        with self._lock:
            self._holder = _thread.get_ident()
            try:
                self._write_lines()
            except OSError:  # the folder is gone: nobody will read them
                self._lines.clear()
                raise
            finally:
                self._holder = 0

    def trim(self) -> None:
        """Take the zeros off the end of the file; it is mapped again where more is written."""
        self.flush()
        with self._lock:
            if self._map is not None:
                self._map = None
                os.truncate(self._path, self._end)

    def discard(self) -> None:
        """Leave no file of this process, which is about to end."""
        for suffix in (".jsonl", ".now", ".numbers"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, self.name + suffix))

    @property
    def _path(self) -> str:
        return os.path.join(self.folder, f"{self.name}.jsonl")

    def _write_lines(self) -> None:
        if not self._end and self._lines:
            self._lines.appendleft(self.header)
            # threading would list the thread, and wait for it at exit; nobody sees one of _thread.
            _thread.start_new_thread(self._keep_flushing, (self._pid,))
        while self._lines and self._file < 0:
            line = self._lines[0].encode()
            if self._map is None or self._end + len(line) >= self._mapped + len(self._map):
                self._map_more(len(line) + 1)
                continue
            begin = self._end - self._mapped
            self._map[begin : begin + len(line)] = line
            self._map[begin + len(line)] = 10
            self._end += len(line) + 1
            self._lines.popleft()
        if self._lines:
            self._append()

    def _map_more(self, size: int) -> None:
        begin = self._end - self._end % mmap.ALLOCATIONGRANULARITY
        length = -(-max(self._window, self._end - begin + size) // mmap.PAGESIZE) * mmap.PAGESIZE
        self._window = min(2 * self._window, _LARGEST)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Without room on the disk, writing to a part that is merely mapped would be SIGBUS.
            os.posix_fallocate(file, begin, length)
            self._map, self._mapped = mmap.mmap(file, length, offset=begin), begin
        except (AttributeError, OSError, ValueError):
            self._map = None
            os.ftruncate(file, self._end)
            self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        finally:
            os.close(file)

    def _append(self) -> None:
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        data = memoryview(("\n".join(lines) + "\n").encode())
        while data:
            written = os.write(self._file, data)
            self._end += written
            data = data[written:]

    def _keep_flushing(self, pid: int) -> None:
        while pid == self._pid:
            time.sleep(FLUSH_SECONDS)
            for tick in self.ticks:
                tick()
            with contextlib.suppress(OSError):  # Python would tell of it on stderr
                self.flush()


_SHORT = 32
"""Integers that stand in the event itself."""
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_MOST_BYTES = 32 << 20
"""Of one process."""


class Numbers:
    """Keeps long lists of integers, the order of a pass above all, in a file beside the record."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._name = ""
        self._size = 0
        self._known: dict[tuple[int, int], Integers] = {}

    def store(self, numbers: Iterable[int]) -> Integers | None:
        """Keep a list and describe where it is; None where there is no more room."""
        values = numbers if isinstance(numbers, array) else array("q", numbers)
        if len(values) <= _SHORT:
            return Integers(len(values), tuple(values))
        step = values[1] - values[0]
        if step and _is_even(values, step):
            return Integers(len(values), first=values[0], step=step)
        return self._store(values)

    def _store(self, values: array[int]) -> Integers | None:
        if self._name != self._writer.name:  # the first, or the first after a fork
            self._name, self._size, self._known = self._writer.name, 0, {}
        key = (zlib.crc32(values), len(values))
        if key not in self._known:
            packed = _pack(values)
            if self._size + len(packed) * packed.itemsize > _MOST_BYTES:
                return None
            self._known[key] = Integers(len(values), offset=self._size, type=packed.typecode)
            self._append(packed)
        return self._known[key]

    def _append(self, packed: array[int]) -> None:
        path = os.path.join(self._writer.folder, f"{self._name}.numbers")
        # As open() would do it in three times as long.
        file, data = os.open(path, _APPENDING, 0o600), memoryview(packed).cast("B")
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        self._size += len(packed) * packed.itemsize


def _is_even(values: array[int], step: int) -> bool:
    first, count = values[0], len(values)
    # The last one alone tells most orders apart, at no cost.
    return values[-1] == first + step * (count - 1) and values == array(
        "q", range(first, first + step * count, step)
    )


def _pack(values: array[int]) -> array[int]:
    try:
        return array("i", values)
    except OverflowError:
        return values
