"""Attaches to a job that runs: finds its ranks, looks until it is clear whether it stands, and lets it go on."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ddpdoctor.blame.hang_snapshot import Dump, HangSnapshot, ProcessRole
from ddpdoctor.blame.liveness import JobState, snapshot_state
from ddpdoctor.files import written_at
from ddpdoctor.hang.capture import capture
from ddpdoctor.hang.flight.folder import files_of, place_in, read_files
from ddpdoctor.hang.flight.reading import rank_of
from ddpdoctor.hang.jobs import Job, NoJob, as_they_are_now, jobs_among, jobs_of, launchers_among
from ddpdoctor.hang.stacks import StacksUnavailable, dump, main_thread
from ddpdoctor.host.proc import loads_torch
from ddpdoctor.host.system import Process, System
from ddpdoctor.text import plural, ranks_phrase

LOOKS = 5
"""After two that were not clear, seconds apart: a rank that sleeps or computes for a second is no news."""


def find(pids: Sequence[int], processes: Sequence[Process] | None = None) -> list[Job]:
    """The jobs of these processes, else every job on this machine. Raises NoJob where one is gone or no job's."""
    running = System().processes() if processes is None else processes
    others = as_they_are_now(process for process in running if process.pid != os.getpid())
    among = [] if pids else jobs_among(others)
    # Those of which a rank has loaded torch, where there are such.
    jobs = jobs_of(pids, others) if pids else [it for it in among if any(map(loads_torch, it.ranks))] or among
    if not jobs:
        spawned = (job for pid in launchers_among(others) for job in jobs_of([pid], others))
        jobs = [numbered for job in spawned if (numbered := _numbered(job))]
        return [job for job in jobs if any(rank is not None for rank in job.ranks.values())]
    return [numbered for job in jobs if (numbered := _numbered(job))]


def _numbered(job: Job) -> Job | None:
    """The job with ranks that its environment does not tell; None where it has only DataLoader workers."""
    if any(rank is not None for rank in job.ranks.values()):
        return job
    if not (ranks := ranks_by_arguments(job.ranks)):
        return None
    if None in ranks.values() or len(set(ranks.values())) < len(ranks):  # by the order of their starts
        ranks = dict(zip(ranks, range(len(ranks)), strict=True))
    return replace(job, ranks=ranks, world_size=job.world_size or len(ranks))


def look_at(job: Job, stage: Callable[[str], None]) -> HangSnapshot:
    """The job as it stands or goes on; ``stage`` hears what begins. Raises NoJob if it ended, or shows no rank."""
    stage(f"looking at {plural(len(job.ranks), 'rank')}")
    records = job.records if job.records and job.records.is_dir() else None
    snapshot = capture(job.ranks, records=records, native=False)
    if snapshot_state(snapshot) is not JobState.MOVES:
        stage(f"checking for {LOOKS - 1} s whether they make progress")
        snapshot = capture(job.ranks, records=records, looks=LOOKS)
    ranks = [process for process in snapshot.processes if process.role is ProcessRole.RANK]
    if all(rank.unseen for rank in ranks):
        reasons = "; ".join(sorted({rank.unseen for rank in ranks}))
        raise NoJob(f"no stack of any rank can be read: {reasons}")
    flight = snapshot.flight or _left_dumps(job)
    unseen = (*snapshot.unseen, *_elsewhere(job))
    return replace(snapshot, world_size=job.world_size, flight=flight, unseen=unseen)


def _elsewhere(job: Job) -> tuple[str, ...]:
    missing = set(range(job.world_size or 0)) - set(job.ranks.values())
    if not missing or len(missing) > 1 << 20:
        return ()
    return (f"{ranks_phrase(missing)} not found: no process on this host has that rank",)


def _left_dumps(job: Job) -> dict[int, Dump]:
    """What torch itself wrote of its flight recorders, where that is not of an earlier job."""
    if (place := place_in(job.environ)) is None:
        return {}
    began = time.time() - job.age
    ranks = {file: rank_of(file) for file in files_of(place) if written_at(file) > began}
    return dict(read_files({file: rank for file, rank in ranks.items() if rank is not None}).ranks)


_WORKER = "_worker_loop"
"""The function in which DataLoader workers spend their lives."""
_SPAWN = "torch/multiprocessing/spawn.py"


def ranks_by_arguments(pids: Iterable[int]) -> dict[int, int | None]:
    """The ranks that the functions of these processes were given; without those that are DataLoader workers. None where
    no function was given a rank, or py-spy may not look."""
    ranks = {}
    for pid in pids:
        try:
            frames = main_thread(dump(pid, "--locals"), pid)
        except StacksUnavailable:
            frames = ()
        if not any(frame["name"] == _WORKER for frame in frames):
            ranks[pid] = rank_in_stack(frames)
    return ranks


def rank_in_stack(frames: Sequence[Mapping[str, Any]]) -> int | None:
    """The rank in a stack, innermost frame first: an argument of that name, or what ``mp.spawn`` counted."""
    by_name = [value for frame in reversed(frames) if (value := _argument(frame, "rank")) is not None]
    counted = [_argument(frame, "i") for frame in frames if str(frame["filename"]).endswith(_SPAWN)]
    return next((value for value in (*by_name, *counted) if value is not None), None)


def _argument(frame: Mapping[str, Any], name: str) -> int | None:
    for variable in frame.get("locals") or ():
        text = str(variable["repr"])
        if variable["name"] == name and variable["arg"] and text.isdecimal() and len(text) < 10:
            return int(text)
    return None
