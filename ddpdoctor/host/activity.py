"""Whether processes work or only wait: a job of which nobody works, and which says nothing, has stopped."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil

LOOK_SECONDS = 0.25
"""Between looks; looking costs too."""
BUSY_SHARE = 0.05
"""Of one CPU; a rank that waits in gloo uses none, its watchdog threads a thousandth."""


class Activity:
    """Follows the CPU time of some processes."""

    def __init__(self) -> None:
        self._cpu: dict[int, float] = {}
        self._looked = self._last_busy = time.monotonic()

    def touch(self) -> None:
        """Count this moment as busy."""
        self._last_busy = time.monotonic()

    def idle_seconds(self, pids: Iterable[int]) -> float:
        """For how long none of the processes has used its CPU or waited for its disk."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            span, self._looked = now - self._looked, now
            if any([self._is_busy(pid, span) for pid in pids]):
                self._last_busy = now
        return now - self._last_busy

    def _is_busy(self, pid: int, span: float) -> bool:
        status, seconds = look(pid)
        used, self._cpu[pid] = seconds - self._cpu.get(pid, 0.0), seconds
        return status == psutil.STATUS_DISK_SLEEP or used > BUSY_SHARE * span


def look(pid: int) -> tuple[str, float]:
    """A process's status as psutil names it, and its CPU time in seconds; an empty status where it is gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return str(process.status()), times.user + times.system
    except psutil.Error:
        return "", 0.0


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    return look(pid)[0] in ("", psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
