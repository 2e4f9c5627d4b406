"""One process at one moment, as /proc shows it; two moments tell whether it works, waits or sleeps."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddpdoctor.host.activity import folder_of
from ddpdoctor.host.calls import Call, call_of

BUSY_SHARE = 0.1
"""Of one CPU; threads of torch that only wait look again and again, which takes up to a twentieth."""
SHORT_SLICE = 200_000
"""Nanoseconds; a thread that looks whether there is something to do runs for 25 us, one that works for milliseconds."""
MUCH_DATA = 64 << 10
"""Bytes a second; what a process reads and writes that only waits is less."""


@dataclass(frozen=True)
class Ran:
    """One thread's time so far, as the scheduler counts it."""

    nanoseconds: int = 0
    queued: int = 0
    """Nanoseconds for which it could have run and had no CPU."""
    slices: int = 0
    """How often it began to run."""


@dataclass(frozen=True)
class Moment:
    """What was seen."""

    state: str
    """The kernel's letter for the main thread: R, S, D, T, t, Z."""
    main: int = 0
    """The main thread's id."""
    threads: Mapping[int, Ran] = field(default_factory=dict)
    moved: int = 0
    """Bytes that it has read and written."""
    call: Call = field(default_factory=Call)


def moment_of(pid: int, ignored: Collection[int] = ()) -> Moment | None:
    """The process now, as if some threads were not there; None where it is gone."""
    folder = folder_of(pid)
    try:
        stat = (folder / "stat").read_text(errors="replace") if folder else ""
    except OSError:
        return None
    if folder is None or not stat:
        return None
    main = int(folder.name)
    state = stat.rpartition(")")[2].split()[0]
    threads = {thread: ran for thread, ran in _threads(folder).items() if thread not in ignored}
    moved = _moved(folder) - sum(_moved(folder / "task" / str(thread)) for thread in ignored)
    return Moment(state, main, threads, moved, call_of(folder, main))


def work_share(before: Moment, after: Moment, seconds: float) -> float:
    """The share of a CPU that it used, or would have used if it had got one."""
    return sum(_wanted(before.threads.get(t, Ran()), ran) for t, ran in after.threads.items()) / 1e9 / seconds


def _wanted(before: Ran, after: Ran) -> float:
    ran, slices = after.nanoseconds - before.nanoseconds, after.slices - before.slices
    # A thread that looks around a hundred times a second queues for each of them on a busy machine.
    works = slices > 0 and ran / slices >= SHORT_SLICE
    return ran + (after.queued - before.queued if works else 0)


def wakes(before: Moment, after: Moment) -> int:
    """How often the main thread began to run in between; one that is blocked does not."""
    own = after.threads.get(after.main, Ran()).slices - before.threads.get(before.main, Ran()).slices
    return max(0, own)


def _threads(folder: Path) -> dict[int, Ran]:
    found = {}
    try:
        tasks = list(folder.glob("task/[0-9]*"))
    except OSError:  # the process has ended since
        return {}
    for task in tasks:
        try:
            ran, queued, slices = (task / "schedstat").read_text().split()
        except (OSError, ValueError):  # it has ended, or this kernel does not count
            continue
        found[int(task.name)] = Ran(int(ran), int(queued), int(slices))
    return found


def _moved(folder: Path) -> int:
    try:
        lines = (folder / "io").read_text().splitlines()
    except OSError:
        return 0
    numbers = {name: int(number) for name, _, number in (line.partition(": ") for line in lines)}
    return max(numbers.get("rchar", 0), numbers.get("read_bytes", 0)) + max(
        numbers.get("wchar", 0), numbers.get("write_bytes", 0)
    )
