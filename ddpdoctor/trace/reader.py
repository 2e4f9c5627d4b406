"""Reads the folder into which the processes of a run recorded themselves, and tells which belong together: those of the
last attempt of a job, and those of each job of a launch line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeVar

from ddpdoctor.memory import uncollected
from ddpdoctor.recorder.events.process import GroupEvent, Start
from ddpdoctor.recorder.events.schema import SCHEMA
from ddpdoctor.trace.record import Record, lines_of
from ddpdoctor.trace.recording import Recording, recording_of

_Key = TypeVar("_Key")


class Process(Protocol):
    """A process that recorded itself. Times are on the clock of its host."""

    @property
    def host(self) -> str: ...
    @property
    def parent(self) -> int:
        """Of a process that torchrun started, this."""

    @property
    def rank(self) -> int | None: ...
    @property
    def environ(self) -> Mapping[str, str]:
        """The launcher's variables when it started."""

    @property
    def started(self) -> float: ...
    @property
    def last(self) -> float:
        """When it last wrote something down."""


def of_earlier_attempts(processes: Mapping[_Key, Process]) -> set[_Key]:
    """Those that had ended when torchrun started another process in their place, or the job anew without their host.

    With fewer hosts, or hosts in another order, torchrun gives the same place another rank. A shell or Slurm may give
    each of its processes the local rank 0, and restarts none.
    """
    workers = {
        key: it
        for key, it in processes.items()
        if "TORCHELASTIC_RESTART_COUNT" in it.environ and it.environ.get("LOCAL_RANK")
    }
    places = {key: (it.host, it.parent, it.environ["LOCAL_RANK"]) for key, it in workers.items()}
    by_start = sorted(workers, key=lambda key: workers[key].started)
    latest = {places[key]: workers[key] for key in by_start}
    ended = {key for key, process in workers.items() if process.last < latest[places[key]].started}
    attempts = Counter(places[key] for key in workers if key in ended)
    # Who was started anew most often knows how many ranks the job has now; clocks of hosts may differ.
    sizes = {_job(latest[place]): _size(latest[place]) for place, _ in reversed(attempts.most_common())}
    others = {key for key, it in workers.items() if _size(it) != sizes.get(_job(it), _size(it))}
    # A launch line may start another torchrun, of another size, on the hosts of this one.
    present = {process.host for key, process in workers.items() if key not in ended | others}
    return ended | {key for key in others if workers[key].host not in present}


def _job(process: Process) -> str:
    """The id of torchrun's rendezvous."""
    return process.environ.get("TORCHELASTIC_RUN_ID", "")


def _size(process: Process) -> str:
    """As torchrun gave it."""
    return process.environ.get("WORLD_SIZE", "")


def successive_jobs(processes: Mapping[_Key, Process]) -> list[set[_Key]]:
    """The processes of each job that a launch line ran, one after the other; the last one last.

    A job begins where a rank is taken again after all processes of the job before had ended.
    """
    hosts: dict[str, list[tuple[Process, _Key]]] = {}
    for key, process in processes.items():
        hosts.setdefault(process.host, []).append((process, key))
    by_host = [_jobs_of_host(of_host) for of_host in hosts.values()]
    if len(set(map(len, by_host))) > 1:  # clocks of hosts differ: which belong together is not known
        return [set(processes)]
    return [set[_Key]().union(*of_hosts) for of_hosts in zip(*by_host, strict=True)]


def _jobs_of_host(processes: Iterable[tuple[Process, _Key]]) -> list[set[_Key]]:
    jobs: list[tuple[set[int | None], set[_Key]]] = []
    for ranks, keys in _overlapping(processes):
        if not jobs or jobs[-1][0] & ranks:
            jobs.append((ranks, keys))
        else:
            jobs[-1] = jobs[-1][0] | ranks, jobs[-1][1] | keys
    return [keys for _, keys in jobs]


def _overlapping(processes: Iterable[tuple[Process, _Key]]) -> list[tuple[set[int | None], set[_Key]]]:
    """The ranks and the processes that ran at one time, or at times that others bridge."""
    parts: list[tuple[set[int | None], set[_Key]]] = []
    latest = float("-inf")
    for process, key in sorted(processes, key=lambda pair: pair[0].started):
        if process.started > latest:
            parts.append((set(), set()))
        parts[-1][0].add(process.rank)
        parts[-1][1].add(key)
        latest = max(latest, process.last)
    return parts


_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "torchrun", "accelerate")


@dataclass(frozen=True)
class Recorded:
    """All processes that recorded themselves."""

    ranks: Mapping[int, Recording] = field(default_factory=dict)
    others: tuple[Recording, ...] = ()
    """Those that joined no process group and were given no rank; a launcher is not among them."""
    lost: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The ranks of each host without which torchrun started the job anew."""
    before: tuple[Mapping[int, Recording], ...] = ()
    """The ranks of the jobs that the launch line ran before this one, in their order."""


@uncollected()
def read_run(folder: Path, until: float = math.inf) -> Recorded:
    """Read every record in a folder; what is cut short or not ours is left out, and what was written later than
    ``until``, on the clock of the records."""
    read = (_ProcessRecord.of(file, until) for file in sorted(folder.glob("*.jsonl")))
    processes = [process for process in read if process]
    by_pid = {process.start.pid: process for process in processes}
    for process in processes:
        parent = by_pid.get(process.start.parent)
        if parent is None or parent is process or process.record.events(GroupEvent):
            continue
        if parent.given_rank == process.given_rank:  # a worker inherits it; a rank's is not its launcher's
            parent.children.append(process.record)
            by_pid.pop(process.start.pid)
    return _sort([recording_of(process.record, process.children) for process in by_pid.values()])


def _sort(recordings: list[Recording]) -> Recorded:
    # After a restart the last counts.
    earlier = of_earlier_attempts(dict(enumerate(recordings)))
    latest = [it for number, it in enumerate(recordings) if number not in earlier]
    *before, ranks = map(_by_rank, _jobs(latest))
    others = (it for it in recordings if it.rank is None and not it.script.endswith(_LAUNCHERS))
    lost = _lost([recordings[number] for number in sorted(earlier)], {it.host for it in ranks.values()})
    script = {rank.script for rank in ranks.values()}
    jobs = tuple(job for job in before if not _was_repeated(job, script))
    return Recorded(ranks, tuple(others), lost, jobs)


def _jobs(recordings: Iterable[Recording]) -> list[list[Recording]]:
    """The processes of each job, of those that have process groups, where there is one; the last one last."""
    of_ranks = [recording for recording in recordings if recording.rank is not None]
    numbered = dict(enumerate(of_ranks))
    jobs = [[of_ranks[number] for number in sorted(numbers)] for numbers in successive_jobs(numbered)]
    return [job for job in jobs if any(it.groups for it in job)] or jobs[-1:] or [[]]


def _by_rank(job: Iterable[Recording]) -> dict[int, Recording]:
    """Where several took one rank, it is those that were given another that went wrong."""
    ranks: dict[int, Recording] = {}
    for recording in sorted(job, key=lambda it: (_took_another(it), it.started)):
        if recording.rank is not None and (recording.groups or recording.rank not in ranks):
            ranks[recording.rank] = recording
    return dict(sorted(ranks.items()))


def _was_repeated(job: Mapping[int, Recording], later: Container[str]) -> bool:
    """Whether a job failed, and its script was started again, as a loop in a shell does."""
    failed = any(it.raised or it.exit is None or it.exit.status for it in job.values())
    return failed and any(it.script in later for it in job.values())


def _lost(earlier: Iterable[Recording], present: Container[str]) -> dict[str, tuple[int, ...]]:
    """The ranks that each host had at last which takes no part any more."""
    ranks: dict[str, dict[str, int]] = {}
    for recording in sorted(earlier, key=lambda it: it.started):
        if recording.rank is not None and recording.host not in present:
            ranks.setdefault(recording.host, {})[recording.environ["LOCAL_RANK"]] = recording.rank
    return {host: tuple(sorted(by_place.values())) for host, by_place in ranks.items()}


def _took_another(recording: Recording) -> bool:
    """Whether it joined with another rank than its launcher gave it."""
    given = recording.environ.get("RANK", str(recording.rank))
    return bool(recording.groups) and given != str(recording.rank)


@dataclass
class _ProcessRecord:
    """One file."""

    record: Record
    start: Start
    children: list[Record] = field(default_factory=list)
    """The records of its workers."""

    @classmethod
    def of(cls, file: Path, until: float) -> _ProcessRecord | None:
        """Read a file; None where it is no record that this version can read."""
        record = Record(lines_of(file), until, file)
        start = next(iter(record.events(Start)), None)
        return cls(record, start) if start is not None and start.schema == SCHEMA else None

    @property
    def given_rank(self) -> str | None:
        """RANK in its environment."""
        return self.start.environ.get("RANK")
