"""What processes do between two looks at them, as Linux shows it in /proc: whether each works, waits or sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path

import psutil

from ddpdoctor.blame.hang_snapshot import Doing
from ddpdoctor.blame.thresholds import (
    BUSY_SHARE,
    LONGEST_SPAN,
    LOOK_SECONDS,
    MUCH_DATA,
    SHORT_SLICE,
    STARVED_SHARE,
)
from ddpdoctor.host.proc import folder_of, text_of
from ddpdoctor.host.system_calls import SystemCall, call_of

_LETTERS = {
    psutil.STATUS_RUNNING: "R",
    psutil.STATUS_DISK_SLEEP: "D",
    psutil.STATUS_STOPPED: "T",
    psutil.STATUS_ZOMBIE: "Z",
}


_HALTED = "ZXTt"


@dataclass(frozen=True)
class ThreadTime:
    """One thread's time so far, as the scheduler counts it."""

    nanoseconds: int = 0
    queued: int = 0
    """Nanoseconds for which it could have run and had no CPU."""
    slices: int = 0
    """How often it began to run."""


@dataclass(frozen=True)
class Snapshot:
    """One process at one moment."""

    state: str
    """The kernel's letter for the main thread: R, S, D, T, t, Z."""
    main: int = 0
    """The main thread's id."""
    threads: Mapping[int, ThreadTime] = field(default_factory=dict)
    moved: int = 0
    """Bytes that it has read and written."""
    call: SystemCall = field(default_factory=SystemCall)

    def of(self, thread: int) -> Snapshot:
        """The same as if this thread were the main one, whose call is not known."""
        return replace(self, main=thread, call=SystemCall()) if thread in self.threads else self


def snapshot(pid: int, ignored: Collection[int] = ()) -> Snapshot | None:
    """The process now, as if some threads were not there; None where it is gone."""
    folder = folder_of(pid)
    stat = text_of(folder, "stat")
    if folder is None or not stat:
        return _by_psutil(pid)
    main = int(folder.name)
    state = stat.rpartition(")")[2].split()[0]
    threads = {thread: ran for thread, ran in _threads(folder).items() if thread not in ignored}
    moved = _moved(folder) - sum(_moved(folder / "task" / str(thread)) for thread in ignored)
    if not any(ran.nanoseconds for ran in threads.values()):  # this kernel does not count
        counted = _by_psutil(pid)
        threads = dict.fromkeys([main], counted.threads[pid]) if counted else {}
    return Snapshot(state, main, threads, moved, call_of(folder, main))


def _by_psutil(pid: int) -> Snapshot | None:
    """What is known of a process without Linux's /proc; None where it is gone."""
    try:
        process = psutil.Process(pid)
        status, times = process.status(), process.cpu_times()
    except psutil.Error:
        return None
    return Snapshot(_LETTERS.get(status, "S"), pid, {pid: ThreadTime(int((times.user + times.system) * 1e9))})


def _threads(folder: Path) -> dict[int, ThreadTime]:
    times = {}
    try:
        tasks = list(folder.glob("task/[0-9]*"))
    except OSError:  # the process has ended since
        return {}
    for task in tasks:
        if counted := text_of(task, "schedstat").split():  # none where it has ended, or nothing counts
            times[int(task.name)] = ThreadTime(*map(int, counted))
    return times


def _moved(folder: Path) -> int:
    lines = (line.partition(": ") for line in text_of(folder, "io").splitlines())
    moved = {name: int(count) for name, _, count in lines}
    pairs = (("rchar", "read_bytes"), ("wchar", "write_bytes"))
    return sum(max(moved.get(name, 0) for name in pair) for pair in pairs)


@dataclass(frozen=True)
class Activity:
    """What one process did between two looks; the first is None where there was none, the last where it is gone."""

    before: Snapshot | None
    after: Snapshot | None
    seconds: float = LOOK_SECONDS

    def doing(self, all_threads: float = BUSY_SHARE, main_thread: float = BUSY_SHARE) -> Doing:
        """What it did; the threads, and the main thread, use these shares of a CPU if they only wait."""
        before, after = self.before, self.after
        if after is None or after.state in "ZX":
            return Doing.GONE
        if after.state in "Tt":
            return Doing.STOPPED
        if before is None:
            return {"R": Doing.COMPUTES, "D": Doing.DISK}.get(after.state, Doing.UNKNOWN)
        # One that stands in the queue all the time has used nothing, and is runnable at both looks.
        busy = self.share() > all_threads or self.share(main=True) > main_thread
        if busy or self._is_runnable_at_both():
            return Doing.COMPUTES
        moved = after.moved - before.moved > MUCH_DATA * self.seconds
        if moved or "D" in before.state + after.state or (before.call.on_disk and after.call.on_disk):
            return Doing.DISK
        return Doing.SLEEPS if before.call.sleeps else Doing.WAITS

    def beside_main(self) -> Activity:
        """What its other threads did, where the main one does nothing but look for something."""
        return replace(self, before=_beside_main(self.before), after=_beside_main(self.after))

    @property
    def call(self) -> SystemCall:
        """That of the first look: whoever looks into a process interrupts its call, which then may look otherwise."""
        return self.before.call if self.before else self.after.call if self.after else SystemCall()

    @property
    def wakes(self) -> float:
        """How often in a second the main thread began to run; one that is blocked does not."""
        thread = self.after.main if self.after else 0
        return max(0, self._times().get(thread, ThreadTime()).slices) / self.seconds

    def share(self, *, main: bool = False) -> float:
        """The share of a CPU that it used, or would have used if it had got one; or that its main thread did."""
        times = self._times()
        if main:
            times = {thread: ran for thread, ran in times.items() if self.after and thread == self.after.main}
        return sum(map(_wanted, times.values())) / 1e9 / self.seconds

    @property
    def lack(self) -> float:
        """The share of the time for which it had no CPU, or waited for its disk, and could not be seen at work."""
        if self.doing() is Doing.DISK:
            return 1.0
        times = self._times()
        queued = sum(ran.queued for ran in times.values()) / 1e9 / self.seconds
        if self._is_runnable_at_both():  # the kernel counts time in the queue when a thread leaves it
            main = times.get(self.after.main, ThreadTime()) if self.after else ThreadTime()
            queued = max(queued, 1.0 - main.nanoseconds / 1e9 / self.seconds)
        return min(1.0, queued)

    def _is_runnable_at_both(self) -> bool:
        return bool(self.before and self.after and self.before.state == self.after.state == "R")

    def _times(self) -> dict[int, ThreadTime]:
        """What each thread used in between."""
        if self.before is None or self.after is None:
            return {}
        first, none = self.before.threads, ThreadTime()
        return {thread: _less(ran, first.get(thread, none)) for thread, ran in self.after.threads.items()}


def _beside_main(shot: Snapshot | None) -> Snapshot | None:
    if shot is None or shot.state in _HALTED:
        return shot
    threads = {thread: ran for thread, ran in shot.threads.items() if thread != shot.main}
    return replace(shot, state="S", threads=threads, call=SystemCall())


def _less(after: ThreadTime, before: ThreadTime) -> ThreadTime:
    return ThreadTime(
        after.nanoseconds - before.nanoseconds, after.queued - before.queued, after.slices - before.slices
    )


def _wanted(ran: ThreadTime) -> int:
    # A thread that looks around a hundred times a second queues for each of them on a busy machine.
    works = ran.slices > 0 and ran.nanoseconds / ran.slices >= SHORT_SLICE
    return ran.nanoseconds + (ran.queued if works else 0)


class Spent(Enum):
    """How processes spent the time between two looks."""

    STARVED = "starved"
    """One of them lacked a CPU or its disk; or nobody looked, since the machine itself stood still."""
    WORKING = "working"
    IDLE = "idle"


class Observer:
    """Looks at processes again and again; ``spent`` is what they did from the last touch to the last look."""

    def __init__(self) -> None:
        self._before: Mapping[int, Snapshot] = {}
        self._now: Mapping[int, Snapshot] = {}
        self._seconds = LOOK_SECONDS
        self._looked = 0.0
        self.touch()

    def touch(self) -> None:
        """Count this moment as one at which somebody worked, and begin to count anew."""
        self._touched = self._last_work = time.monotonic()
        self.spent = dict.fromkeys(Spent, 0.0)

    @property
    def is_due(self) -> bool:
        """Whether the last look is long enough ago for another."""
        return time.monotonic() - self._looked >= LOOK_SECONDS

    def look(self, pids: Iterable[int], ignored: Collection[int] = ()) -> None:
        """Look at them, but not at threads that are ignored, as those of our recorder."""
        now = time.monotonic()
        self._seconds, self._looked = now - self._looked, now
        snapshots = {pid: snapshot(pid, ignored) for pid in pids}
        self._before = self._now
        self._now = {pid: shot for pid, shot in snapshots.items() if shot is not None}

    def activity(self, pid: int) -> Activity:
        """What a process did between the last two looks."""
        return Activity(self._before.get(pid), self._now.get(pid), self._seconds)

    def follow(self, pids: Callable[[], Iterable[int]]) -> None:
        """Find the processes and look at them where that is due, and count what they spent their time with."""
        if not self.is_due:
            return
        self.look(pids())
        activities = [self.activity(pid) for pid in self._now]
        works = any(activity.doing() is Doing.COMPUTES for activity in activities)
        lacks = (activity.lack for activity in activities)
        lack = 1.0 if self._seconds > LONGEST_SPAN else max(lacks, default=0.0)
        if works or lack > STARVED_SHARE:
            self._last_work = self._looked
        seconds = min(self._seconds, LONGEST_SPAN, self._looked - self._touched)
        self.spent[Spent.STARVED] += lack * seconds
        self.spent[Spent.WORKING if works else Spent.IDLE] += (1.0 - lack) * seconds

    def idle_seconds(self, pids: Callable[[], Iterable[int]]) -> float:
        """For how long none of the processes has worked, as far as there were CPUs and disk for it."""
        self.follow(pids)
        return time.monotonic() - self._last_work
