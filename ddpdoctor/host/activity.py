"""Whether processes work or only wait: a job of which nobody works, and which says nothing, has stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import psutil

LOOK_SECONDS = 1.0
"""Between looks: short ones see single ticks of 10 ms, and take those of a waiting rank for work."""
LONGEST_SPAN = 5 * LOOK_SECONDS
"""Over a longer time an average says nothing of its end: a process may have begun to work just now."""
BUSY_SHARE = 0.1
"""Of one CPU; a rank that waits in gloo looks again and again, which takes up to a twentieth."""
SPARE_CPUS = 0.5
"""Less than this unused, and a process that works may get no more than one that waits."""

RANKS_PER_CPU = 4
"""More than this on one CPU, and each gets the more time: they wait for each other's turn."""


def patience(ranks: int, cpus: float) -> float:
    """How many times its deadline a rank gets, by how many share a CPU."""
    return max(1.0, ranks / (RANKS_PER_CPU * cpus))


class Activity:
    """Follows the CPU time of some processes.

    Where CPUs are short, because of the processes themselves, of other work or of a quota, nobody counts as idle.

    Args:
        cpus: how many CPUs affinity mask and quota leave.
    """

    def __init__(self, cpus: float) -> None:
        self._cpus = cpus
        self._cpu: dict[int, float] = {}
        self._unused = 0.0
        self._looked = self._last_busy = self._last_short = time.monotonic()

    def touch(self) -> None:
        """Count this moment as busy."""
        self._last_busy = self._last_short = time.monotonic()

    def free_seconds(self) -> float:
        """For how long, up to the last look, CPU and disk were there for whoever had work."""
        return self._looked - self._last_short

    def idle_seconds(self, pids: Iterable[int]) -> float:
        """For how long none of the processes has used its CPU or waited for its disk."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            span, self._looked = now - self._looked, now
            self._take_note(pids, span)
            if span > LONGEST_SPAN:
                self.touch()
        return now - self._last_busy

    def _take_note(self, pids: Iterable[int], span: float) -> None:
        looks = {pid: look(pid) for pid in pids}
        shares = [(seconds - self._cpu.get(pid, 0.0)) / span for pid, (_, seconds) in looks.items()]
        self._cpu = {pid: seconds for pid, (_, seconds) in looks.items()}
        before, self._unused = self._unused, unused_seconds()
        spare = min((self._unused - before) / span, self._cpus - sum(shares))
        disk = any(status == psutil.STATUS_DISK_SLEEP for status, _ in looks.values())
        if disk or spare < min(SPARE_CPUS, self._cpus / 2):
            self._last_busy = self._last_short = self._looked
        if max(shares, default=0.0) > BUSY_SHARE:
            self._last_busy = self._looked


def unused_seconds() -> float:
    """The time, in seconds of one CPU, that the CPUs which we may run on have had nothing to do."""
    times = psutil.cpu_times(percpu=True)
    ours = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(times))
    return sum(times[cpu].idle + getattr(times[cpu], "iowait", 0.0) for cpu in ours if cpu < len(times))


def look(pid: int) -> tuple[str, float]:
    """A process's status as psutil names it, and its CPU time in seconds; an empty status where it is gone."""
    try:
        process = psutil.Process(pid if _proc_is_ours() else _number_in_proc(pid))
        with process.oneshot():
            times = process.cpu_times()
            return str(process.status()), times.user + times.system
    except psutil.Error:
        return "", 0.0


@cache
def _proc_is_ours() -> bool:
    """Whether processes have their pids as names in /proc: not in a pid namespace that has none of its own."""
    try:
        return Path("/proc/self").readlink().name == str(os.getpid())
    except OSError:  # not Linux
        return True


@cache
def _number_in_proc(pid: int) -> int:
    """The name in /proc of a process of our pid namespace; raises NoSuchProcess where it has none."""
    namespace = Path("/proc/self/ns/pid").readlink()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "ns/pid").readlink() == namespace and _pid_inside(folder) == pid:
                return int(folder.name)
        except OSError:
            continue
    raise psutil.NoSuchProcess(pid)


def _pid_inside(folder: Path) -> int:
    """The pid that a process itself sees."""
    status = (folder / "status").read_text(errors="replace")
    return next(int(line.split()[-1]) for line in status.splitlines() if line.startswith("NSpid:"))


def folder_of(pid: int) -> Path | None:
    """The folder in /proc of a process of our pid namespace; None where it has none."""
    try:
        number = pid if _proc_is_ours() else _number_in_proc(pid)
    except (psutil.Error, OSError):
        return None
    return Path("/proc", str(number))


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    return look(pid)[0] in ("", psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
