"""Looks at the processes of a running job, and harms none of them.

Each is looked at twice or more: what it is in, by py-spy, and what it used meanwhile, by /proc. A process is halted
for about a millisecond by each look, and for some 20 where native frames are read, which is done only where it stands.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from ddpdoctor.hang.answers import Answer, ask
from ddpdoctor.hang.flight.dump import Dump
from ddpdoctor.hang.flight.folder import read_files
from ddpdoctor.hang.stacks import Frame, StacksUnavailable, is_ours, take_native, take_stacks
from ddpdoctor.hang.standstill import Doing, Process, Role, Standstill
from ddpdoctor.host.calls import Call
from ddpdoctor.host.moment import BUSY_SHARE, MUCH_DATA, Moment, moment_of, wakes, work_share
from ddpdoctor.text import quote_command, ranks_phrase

PAUSE = 1.0
"""Seconds between looks: in less, single ticks of a busy machine pass for work."""
_HELPERS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.semaphore_tracker",
    "multiprocessing.forkserver",
)
"""Children of multiprocessing's own, which wait all the time and belong to nobody's work."""


@dataclass
class _Look:
    """All processes at one moment."""

    time: float
    moments: Mapping[int, Moment | None]
    stacks: Mapping[int, tuple[Frame, ...] | StacksUnavailable]
    answers: Mapping[int, Answer] = field(default_factory=dict)

    def stack(self, pid: int) -> tuple[Frame, ...]:
        """Without the frames of our recorder; empty where nobody could tell."""
        seen = self.stacks.get(pid, ())
        if isinstance(seen, StacksUnavailable):
            seen = self.answers[pid].stack if pid in self.answers else ()
        return tuple(frame for frame in seen if not is_ours(frame.file))


def capture(
    pids: Mapping[int, int | None], *, records: Path | None = None, seconds: float = 0.0, looks: int = 2
) -> Standstill:
    """Look at a job.

    Args:
        pids: the processes of its ranks on this host, and their ranks where they are known; what they have started
            is found.
        records: the folder into which our recorder writes where it is in there.
        seconds: since the last sign of progress, where somebody has watched.
        looks: how often; at least two tell a stall from slow work.
    """
    workers = {worker: pid for pid in pids for worker in _children(pid)}
    known = [*pids, *workers]
    taken = [_look(known, records, first=True)]
    for _ in range(looks - 1):
        time.sleep(max(0.0, taken[-1].time + PAUSE - time.monotonic()))
        taken.append(_look(known, records, first=False))
    found = [_process(pid, pids.get(workers.get(pid, pid)), pid in workers, taken) for pid in known]
    flight, refused = _flights(pids, taken[0].answers)
    return Standstill(tuple(_with_native(found)), seconds, flight=flight, unseen=refused)


def _children(pid: int) -> list[int]:
    """The processes below a rank, without those that only serve multiprocessing itself."""
    try:
        below = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [one.pid for one in below if not any(helper in _command(one.pid) for helper in _HELPERS)]


def _look(pids: Sequence[int], records: Path | None, *, first: bool) -> _Look:
    # Before py-spy halts them: a halted process would be seen as stopped.
    moments = {pid: moment_of(pid) for pid in pids}
    now = time.monotonic()
    running = [pid for pid, moment in moments.items() if moment is not None and moment.state not in "ZXTt"]
    stacks = take_stacks(running)
    hidden = [pid for pid, stack in stacks.items() if isinstance(stack, StacksUnavailable)]
    wanted = running if first else hidden
    answers = ask(records, wanted) if records and wanted else {}
    return _Look(now, moments, stacks, answers)


def _process(pid: int, rank: int | None, is_worker: bool, looks: Sequence[_Look]) -> Process:
    stacks = [look.stack(pid) for look in looks]
    first, last = looks[0], looks[-1]
    before, after = first.moments[pid], last.moments[pid]
    seconds = max(last.time - first.time, 1e-3)
    refused = first.stacks.get(pid)
    answered = pid in first.answers
    return Process(
        pid,
        rank,
        Role.WORKER if is_worker else Role.RANK,
        platform.node(),
        command=_command(pid),
        doing=_doing(before, after, seconds) if len(looks) > 1 else _state(after),
        call=_call(before, after).text,
        stack=stacks[0],
        again=next((one for one in stacks[1:] if one != stacks[0]), stacks[-1]) if len(looks) > 1 else (),
        wakes=wakes(before, after) / seconds if before and after else 0.0,
        from_interpreter=isinstance(refused, StacksUnavailable) and answered,
        unseen=str(refused) if isinstance(refused, StacksUnavailable) and not answered else "",
    )


def _doing(before: Moment | None, after: Moment | None, seconds: float) -> Doing:
    state = _state(after)
    if before is None or after is None or state in (Doing.GONE, Doing.STOPPED):
        return state
    # One that stands in the queue all the time has used nothing, and is runnable at both looks.
    if work_share(before, after, seconds) > BUSY_SHARE or before.state == after.state == "R":
        return Doing.COMPUTES
    if "D" in before.state + after.state or after.moved - before.moved > MUCH_DATA * seconds:
        return Doing.DISK
    return Doing.SLEEPS if _call(before, after).sleeps else Doing.WAITS


def _call(before: Moment | None, after: Moment | None) -> Call:
    """That of the first moment: after it py-spy has interrupted the call, which then may look like another."""
    return before.call if before else after.call if after else Call()


def _state(moment: Moment | None) -> Doing:
    """What one moment alone tells."""
    if moment is None or moment.state in "ZX":
        return Doing.GONE
    return Doing.STOPPED if moment.state in "Tt" else Doing.UNKNOWN


def _with_native(found: Sequence[Process]) -> Iterable[Process]:
    """The same, with native frames of those that stand: to read them halts a process for longer."""
    standing = [one.pid for one in found if one.stands and one.stack and not one.from_interpreter]
    native = take_native(standing)
    return (replace(one, native=native.get(one.pid, ())) for one in found)


def _flights(
    pids: Mapping[int, int | None], answers: Mapping[int, Answer]
) -> tuple[dict[int, Dump], tuple[str, ...]]:
    """What the flight recorders hold, by rank, and what is said of those that cannot be read."""
    ranks = {pid: rank for pid, rank in pids.items() if rank is not None}
    files = {one.flight: ranks[pid] for pid, one in answers.items() if one.flight and pid in ranks}
    dumps = read_files(files)
    refused = (
        f"the flight recorder of {ranks_phrase([files[file]])} cannot be read: {why}"
        for file, why in dumps.refused.items()
    )
    return {rank: dump for rank, dump in dumps.ranks.items() if dump.rings}, tuple(refused)


def _command(pid: int) -> str:
    try:
        return quote_command(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""
