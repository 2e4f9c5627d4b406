"""Looks at the processes of a running job, and harms none of them.

Each is looked at twice or more: what it is in, by py-spy, and what it used meanwhile, by /proc. A process is halted
for some milliseconds by each look, and for some 50 where native frames are read, which is done only where it stands.
"""

import platform
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import psutil

from ddpdoctor.blame.frames import Frame, is_of_recorder, of_script, where_of
from ddpdoctor.blame.hang_snapshot import Doing, Dump, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.blame.thresholds import LOOK_SECONDS
from ddpdoctor.hang.flight.folder import read_files
from ddpdoctor.hang.heartbeats import Answer, ask, handled_by, recorders_threads
from ddpdoctor.hang.stacks import MainThread, look_into, take_native
from ddpdoctor.host.activity import Activity, Snapshot, snapshot
from ddpdoctor.host.proc import SERVANTS, descendants, loads_driver, program_of, without_padding
from ddpdoctor.program.polls import poll_of
from ddpdoctor.text import quote_command, ranks_phrase


@dataclass(frozen=True)
class Look:
    """What was seen."""

    time: float
    snapshots: Mapping[int, Snapshot | None]
    threads: Mapping[int, MainThread]
    """By py-spy."""
    hidden: Mapping[int, str]
    """Why py-spy saw nothing."""
    answers: Mapping[int, Answer] = field(default_factory=dict)
    """Of our recorder, from the inside."""

    def stack(self, pid: int) -> tuple[Frame, ...]:
        """Without the frames of our recorder; empty where nobody could tell."""
        stack = self.threads[pid].stack if pid in self.threads else ()
        if pid in self.hidden and pid in self.answers:
            stack = self.answers[pid].stack
        return tuple(frame for frame in stack if not is_of_recorder(frame.file))


def look(pids: Sequence[int], records: Path | None, *, first: bool) -> Look:
    """Look at these processes. Our recorder, which writes to ``records``, is asked for the flight recorder at the first
    look, and for the stacks that py-spy does not see at each."""
    # Before py-spy halts them: a halted process would be seen as stopped.
    ours = recorders_threads(records)
    snapshots = {pid: snapshot(pid, ours) for pid in pids}
    now = time.monotonic()
    doing = {pid: Activity(None, snapshot).doing() for pid, snapshot in snapshots.items()}
    running = [pid for pid in pids if doing[pid] is not Doing.GONE]
    python = [pid for pid in running if "python" in (program_of(pid) or "python")]
    taken = look_into(python, [pid for pid in running if doing[pid] is Doing.STOPPED])
    threads = {pid: thread for pid, thread in taken.items() if isinstance(thread, MainThread)}
    hidden = {pid: str(reason) for pid, reason in taken.items() if not isinstance(reason, MainThread)}
    numbers = {pid: thread.number for pid, thread in threads.items() if thread.number}
    snapshots |= {pid: shot.of(number) for pid, number in numbers.items() if (shot := snapshots[pid])}
    wanted = python if first else list(hidden)
    return Look(now, snapshots, threads, hidden, ask(records, wanted) if records and wanted else {})


_DEVICE_WAITS = ("StreamSynchronize", "EventSynchronize", "DeviceSynchronize", "CtxSynchronize")
"""What CUDA's and ROCm's functions are called that wait for a GPU; they use a CPU all the time."""


def capture(
    pids: Mapping[int, int | None],
    *,
    records: Path | None = None,
    seconds: float = 0.0,
    looks: int = 2,
    native: bool = True,
) -> HangSnapshot:
    """Look at a job: at the processes of its ranks on this host, with their ranks where they are known, and at what
    they have started.

    Our recorder writes into ``records``, where it is in there; ``seconds`` are since the last sign of progress, where
    somebody has watched. At least two looks tell a stall from slow work; native frames are read of those that stand.
    """
    # Below each rank, without those that only serve multiprocessing itself.
    below = ((child, pid) for pid in pids for child in descendants(pid))
    workers = {child: pid for child, pid in below if not any(name in _command(child) for name in SERVANTS)}
    known = [*pids, *workers]
    taken = [look(known, records, first=True)]
    for _ in range(looks - 1):
        time.sleep(max(0.0, taken[-1].time + LOOK_SECONDS - time.monotonic()))
        taken.append(look(known, records, first=False))
    processes = [_process(pid, pids.get(workers.get(pid, pid)), pid in workers, taken) for pid in known]
    processes = [replace(process, handles=handled_by(records, process.pid)) for process in processes]
    flight, refused = _flights(pids, taken[0].answers)
    seen = tuple(_with_native(processes) if native else processes)
    return HangSnapshot(seen, seconds, flight=flight, unseen=refused)


def _process(pid: int, rank: int | None, is_worker: bool, looks: Sequence[Look]) -> SampledProcess:
    first, last = looks[0], looks[-1]
    before = first.snapshots[pid] if len(looks) > 1 else None
    activity = Activity(before, last.snapshots[pid], max(last.time - first.time, 1e-3))
    stacks = [look.stack(pid) for look in looks]
    values = [look.threads[pid].values for look in looks if pid in look.threads]
    process = SampledProcess(
        pid,
        rank,
        ProcessRole.WORKER if is_worker else ProcessRole.RANK,
        platform.node(),
        _command(pid),
        doing=activity.doing(),
        call=activity.call.text,
        stack=stacks[0],
        again=next((stack for stack in stacks[1:] if stack != stacks[0]), stacks[-1])
        if len(looks) > 1
        else (),
        wakes=activity.wakes,
        changes=any(earlier != later for earlier, later in pairwise(values)),
        peer=first.threads[pid].peer if pid in first.threads else None,
        from_interpreter=pid in first.hidden and pid in first.answers,
        unseen=first.hidden.get(pid, "") if pid not in first.answers else "",
    )
    return _as_sleeping(process, activity) if all(map(_polls, stacks)) else process


def _polls(stack: Sequence[Frame]) -> bool:
    """Whether a process stands in a loop that does nothing but look for something."""
    return poll_of([where_of(stack[index]) for index in of_script(stack)][::-1]) is not None


def _as_sleeping(process: SampledProcess, activity: Activity) -> SampledProcess:
    """The same as one that sleeps: how often it looks, and that it counts its looks, is no work."""
    works = activity.beside_main().doing() in (Doing.COMPUTES, Doing.DISK)
    if works or process.doing in (Doing.STOPPED, Doing.GONE):
        return process
    return replace(process, doing=Doing.SLEEPS, wakes=0.0, changes=False, again=process.stack)


def _with_native(processes: Sequence[SampledProcess]) -> Iterable[SampledProcess]:
    """The same, with native frames of those that stand: to read them halts a process for longer."""
    native = take_native([process.pid for process in processes if _is_at_one_place(process)])
    return (_in_native(process, native.get(process.pid, ())) for process in processes)


def _is_at_one_place(process: SampledProcess) -> bool:
    """Whether it stands, or looks again and again in one call whether its GPU is ready."""
    if process.from_interpreter or process.changes or not process.stack or process.stack != process.again:
        return False
    waits = process.doing in (Doing.WAITS, Doing.SLEEPS)
    return waits or (process.doing is Doing.COMPUTES and loads_driver(process.pid))


def _in_native(process: SampledProcess, native: tuple[str, ...]) -> SampledProcess:
    functions = (text.partition(" (")[0] for text in native)
    call = next((name for name in functions if name.endswith(_DEVICE_WAITS)), None)
    if call is not None and process.doing is Doing.COMPUTES:
        return replace(process, native=native, doing=Doing.WAITS, call=call, wakes=0.0)
    return replace(process, native=native)


def _flights(
    pids: Mapping[int, int | None], answers: Mapping[int, Answer]
) -> tuple[dict[int, Dump], tuple[str, ...]]:
    """What the flight recorders hold, by rank, and what is said of those that cannot be read."""
    ranks = {pid: rank for pid, rank in pids.items() if rank is not None}
    files = {answer.flight: ranks[pid] for pid, answer in answers.items() if answer.flight and pid in ranks}
    dumps = read_files(files)
    refused = (
        f"the flight recorder of {ranks_phrase([files[file]])} cannot be read: {why}"
        for file, why in dumps.refused.items()
    )
    return {rank: dump for rank, dump in dumps.ranks.items() if dump.rings}, tuple(refused)


def _command(pid: int) -> str:
    try:
        return quote_command(without_padding(psutil.Process(pid).cmdline()))
    except psutil.Error:
        return ""
