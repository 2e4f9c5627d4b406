"""Finds the ranks of running jobs among the processes of this machine."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ddpdoctor.host.proc import SERVANTS, live_environ, loads_torch, runs_python
from ddpdoctor.host.system import Process
from ddpdoctor.recorder.launchers import LAUNCHERS
from ddpdoctor.recorder.options import FOLDER

_RANK = tuple(name for launcher in LAUNCHERS for name in launcher.rank)
"""Variables that tell a process its rank, the surest first."""
_SIZE = tuple(name for launcher in LAUNCHERS for name in launcher.size)
_KEY = tuple(name for launcher in LAUNCHERS for name in launcher.job)
"""What all ranks of a job have in common."""
_SPAWNED = "--multiprocessing-fork"
"""What multiprocessing's spawn puts into the command line of its children."""


class NoJob(Exception):
    """There is no job to look at; the text says why, in one sentence."""


@dataclass(frozen=True)
class Job:
    """The ranks of one job on this host."""

    ranks: Mapping[int, int | None]
    """Process ids to ranks; None where no variable tells, as in children of ``mp.spawn``."""
    world_size: int | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    """Of one of them."""
    command: tuple[str, ...] = ()
    age: float = 0.0
    """Seconds since the first of them started."""
    user: str = ""

    @property
    def records(self) -> Path | None:
        """Where our recorder writes; None where it is not in there."""
        return Path(self.environ[FOLDER]) if FOLDER in self.environ else None


def as_they_are_now(processes: Iterable[Process]) -> list[Process]:
    """The processes; those with torch that were not given a rank, with what they have set themselves since."""
    return [_as_it_is_now(process) for process in processes]


def _as_it_is_now(process: Process) -> Process:
    if _rank(process) is not None or not runs_python(process.pid) or not loads_torch(process.pid):
        return process
    environ = {**process.environ, **live_environ(process.pid, (*_RANK, *_SIZE, *_KEY, "LOCAL_RANK"))}
    return replace(process, environ=environ)


def jobs_among(processes: Sequence[Process]) -> list[Job]:
    """Every job whose ranks have their rank in their environment."""
    by_pid = {process.pid: process for process in processes}
    known = [process for process in processes if _rank(process) is not None and runs_python(process.pid)]
    ranks = [process for process in known if not _is_worker(process, by_pid)]
    launchers = {above.pid for rank in ranks for above in _above(rank, by_pid)}
    ranks = [rank for rank in ranks if rank.pid not in launchers and not _is_servant(rank)]
    groups: dict[tuple[str, ...], list[Process]] = {}
    for rank in ranks:
        groups.setdefault((rank.user, *(rank.environ.get(name, "") for name in _KEY)), []).append(rank)
    return [job for group in groups.values() for job in _apart(_with_torch(group))]


def _with_torch(group: Sequence[Process]) -> Sequence[Process]:
    """Those that have it (a tool in a job's container has the job's variables, too); where none has yet, as in ranks
    that hang before they import torch, those that torch's own variables number."""
    loaded = [process for process in group if loads_torch(process.pid)]
    return loaded or [process for process in group if _RANK[0] in process.environ]


def jobs_of(pids: Sequence[int], processes: Sequence[Process]) -> list[Job]:
    """The jobs to which these processes belong: as launchers, as ranks, or as workers of a rank. Raises NoJob where one
    is gone, is another user's, or has nothing to do with Python."""
    by_pid = {process.pid: process for process in processes}
    known = jobs_among(processes)
    jobs: dict[tuple[int, ...], Job] = {}
    for pid in pids:
        if pid not in by_pid:
            raise NoJob(f"there is no process {pid}")
        line = {pid, *(process.pid for process in _above(by_pid[pid], by_pid))}
        below = {process.pid for process in _below(pid, processes)}
        related = [job for job in known if line & job.ranks.keys() or below & job.ranks.keys()]
        given = by_pid[pid]  # or the process that has started it by multiprocessing's spawn
        launcher = by_pid.get(given.parent, given) if _SPAWNED in given.command else given
        for job in related or [_without_variables(launcher, processes)]:
            jobs[tuple(job.ranks)] = job
    return list(jobs.values())


def launchers_among(processes: Sequence[Process]) -> list[int]:
    """Processes that have started others by multiprocessing's spawn, with torch in them, as ``mp.spawn`` does."""
    spawned = [process for process in processes if _SPAWNED in process.command and _rank(process) is None]
    return sorted({process.parent for process in spawned if loads_torch(process.pid)})


def script_of(command: tuple[str, ...]) -> tuple[str, ...]:
    """A command without the interpreter and its options."""
    rest = command[1:] if "python" in Path((*command, "")[0]).name else command
    while rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):
        rest = rest[1:]
    return rest or command


def _is_worker(process: Process, by_pid: Mapping[int, Process]) -> bool:
    """Whether it has inherited all its variables from a process that is a rank itself, as DataLoader workers have."""
    held = _inherited(process)
    return any(_inherited(above) == held and runs_python(above.pid) for above in _above(process, by_pid))


def _inherited(process: Process) -> tuple[str, ...]:
    return tuple(process.environ.get(name, "") for name in (*_RANK, *_SIZE, *_KEY, "LOCAL_RANK"))


def _rank(process: Process) -> int | None:
    return number_in(process.environ, _RANK)


def number_in(environ: Mapping[str, str], names: Iterable[str]) -> int | None:
    """The number that the first of these variables gives which holds one, as a rank or a size."""
    given = (environ[name] for name in names if environ.get(name, "").isdecimal())
    return next((int(text) for text in given if len(text) < 10), None)


def _above(process: Process, by_pid: Mapping[int, Process]) -> Iterator[Process]:
    visited = {process.pid}
    while (parent := by_pid.get(process.parent)) is not None and parent.pid not in visited:
        visited.add(parent.pid)
        yield parent
        process = parent


def _below(pid: int, processes: Sequence[Process]) -> Iterator[Process]:
    for process in processes:
        if process.parent == pid and process.pid != pid:
            yield process
            yield from _below(process.pid, processes)


def _apart(group: Sequence[Process]) -> Iterator[Job]:
    """One job, or none; or several that only their launchers tell apart, since a rank is there twice."""
    ranks = [_rank(process) for process in group]
    if len(set(ranks)) == len(ranks):
        yield from [_job(group)] if group else []
        return
    by_parent: dict[int, list[Process]] = {}
    for process in group:
        by_parent.setdefault(process.parent, []).append(process)
    yield from (_job(siblings) for siblings in by_parent.values())


def _job(ranks: Sequence[Process]) -> Job:
    ordered = sorted(ranks, key=lambda rank: (_rank(rank) or 0, rank.pid))
    first = ordered[0]
    numbers, age = {rank.pid: _rank(rank) for rank in ordered}, max(rank.age for rank in ordered)
    return Job(numbers, number_in(first.environ, _SIZE), first.environ, first.command, age, first.user)


def _without_variables(given: Process, processes: Sequence[Process]) -> Job:
    """The job of a launcher that gives its ranks no variables, as ``mp.spawn``; or of one process alone."""
    candidates = [process for process in (given, *_below(given.pid, processes)) if not _is_servant(process)]
    python = [process for process in candidates if runs_python(process.pid)]
    if not python:
        raise NoJob(_why_not(given))
    parents = [process.parent for process in python if _SPAWNED in process.command]
    launcher = next((process for process in candidates if process.pid in parents), python[0])
    children = [process for process in python if process.parent == launcher.pid]
    spawned = [child for child in children if _SPAWNED in child.command] or children
    ranks = sorted(spawned, key=lambda child: (-child.age, child.pid)) or [launcher]
    command, age = (launcher if launcher in python else ranks[0]).command, max(rank.age for rank in ranks)
    return Job(dict.fromkeys(rank.pid for rank in ranks), None, ranks[0].environ, command, age, given.user)


def _why_not(given: Process) -> str:
    name = given.command[0] if given.command else "a kernel thread"
    if not given.environ and given.user:
        users = " or ".join(dict.fromkeys((given.user, "root")))
        return (
            f"process {given.pid} ({name}) is {given.user}'s and may not be inspected: run as {users}, "
            "in a container with --cap-add SYS_PTRACE"
        )
    return f"process {given.pid} ({name}) and its children do not run Python"


def _is_servant(process: Process) -> bool:
    """Whether it only serves multiprocessing itself."""
    return any(name in word for word in process.command for name in SERVANTS)
