"""Writes events to this process's own file, so that what was flushed can be read after SIGKILL."""

from __future__ import annotations

import _thread
import os
import time
from typing import Any

FLUSH_SECONDS = 0.25
"""How long an event may stay in memory."""
_LARGEST_BUFFER = 4000
"""Events; more are written at once."""
LARGEST_RECORD = 64 << 20
"""Bytes after which a process writes its last words only; days of evaluation can come to it, training does not."""


class Writer:
    """An append-only file of JSON lines, one a process; opened with its first event."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.header = ""
        """The first line of the file."""
        self.began = 0
        """What tells this process from one that has its number later."""
        self.ticks: list[Any] = []
        """Functions that the background thread calls between flushes."""
        self._lines: list[str] = []
        self._lock = _thread.allocate_lock()
        self._file = -1
        self._written = 0
        self._pid = os.getpid()
        self._closed = False

    @property
    def name(self) -> str:
        """What files of this process begin with, in the folder."""
        return f"{self._pid}-{self.began}"

    def write(self, line: str, *, now: bool = False) -> None:
        """Append a line; ``now`` brings it to the file before this returns."""
        if self._written > LARGEST_RECORD and not now:
            return
        self._lines.append(line)
        if now or self._file < 0 or len(self._lines) > _LARGEST_BUFFER:
            self.flush()

    def flush(self) -> None:
        """Bring what is in memory to the file."""
        with self._lock:
            if self._closed or not self._lines:
                return
            lines, self._lines = self._lines, []
            if self._file < 0:
                lines.insert(0, self.header)
                self._open()
            data = memoryview(("\n".join(lines) + "\n").encode())
            self._written += len(data)
            while data:
                data = data[os.write(self._file, data) :]

    def _open(self) -> None:
        path = os.path.join(self.folder, f"{self.name}.jsonl")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        # threading would list the thread, and wait for it at exit; nobody sees one of _thread.
        _thread.start_new_thread(self._keep_flushing, (self._pid,))

    def _keep_flushing(self, pid: int) -> None:
        while pid == self._pid and not self._closed:
            time.sleep(FLUSH_SECONDS)
            for tick in self.ticks:
                tick()
            self.flush()

    def after_fork(self) -> None:
        """In a child: what the parent has in memory is the parent's, and so is its file."""
        self._lock = _thread.allocate_lock()
        self._lines = []
        if self._file >= 0:
            os.close(self._file)
        self._file, self._written, self._pid = -1, 0, os.getpid()

    def close(self) -> None:
        """Write what is left; nothing more is taken."""
        self.flush()
        self._closed = True
