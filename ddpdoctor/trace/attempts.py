"""Which processes belong together: those of the last attempt of a job, and those of each job of a launch line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

_Key = TypeVar("_Key")
_Place = tuple[str, int, str]


@dataclass(frozen=True)
class Span:
    """When the process of a rank ran, on the clock of its host."""

    host: str
    rank: int
    began: float
    last: float


@dataclass(frozen=True)
class Worker:
    """A process that torchrun started. Times are on the clock of its host."""

    host: str
    agent: int
    """The process id of its torchrun."""
    local_rank: str
    job: str
    """The id of torchrun's rendezvous."""
    world_size: str
    """As torchrun gave it."""
    began: float
    last: float
    """When it last wrote something down."""

    @property
    def place(self) -> _Place:
        """What the process has that is started in its place."""
        return self.host, self.agent, self.local_rank


def worker(environ: Mapping[str, str], host: str, agent: int, began: float, last: float) -> Worker | None:
    """The process with these variables; None of one that something else started.

    A shell or Slurm may give each of its processes the local rank 0, and restarts none.
    """
    local_rank = environ.get("LOCAL_RANK")
    if "TORCHELASTIC_RESTART_COUNT" not in environ or not local_rank:
        return None
    job, world_size = environ.get("TORCHELASTIC_RUN_ID", ""), environ.get("WORLD_SIZE", "")
    return Worker(host, agent, local_rank, job, world_size, began, last)


def of_earlier_attempts(workers: Mapping[_Key, Worker]) -> set[_Key]:
    """Those that had ended when torchrun started another process in their place, or the job anew without their host.

    With fewer hosts, or hosts in another order, torchrun gives the same place another rank.
    """
    latest: dict[_Place, Worker] = {}
    for process in sorted(workers.values(), key=lambda it: it.began):
        latest[process.place] = process
    ended = {key for key, process in workers.items() if process.last < latest[process.place].began}
    attempts = Counter(workers[key].place for key in ended)
    # Who was started anew most often knows how many ranks the job has now; clocks of hosts may differ.
    sizes = {latest[place].job: latest[place].world_size for place, _ in reversed(attempts.most_common())}
    others = {
        key
        for key, process in workers.items()
        if process.world_size != sizes.get(process.job, process.world_size)
    }
    # A launch line may start another torchrun, of another size, on the hosts of this one.
    present = {process.host for key, process in workers.items() if key not in ended | others}
    return ended | {key for key in others if workers[key].host not in present}


def successive_jobs(spans: Mapping[_Key, Span]) -> list[set[_Key]]:
    """The processes of each job that a launch line ran, one after the other; the last one last.

    A job begins where a rank is taken again after all processes of the job before had ended.
    """
    hosts: dict[str, list[tuple[Span, _Key]]] = {}
    for key, span in spans.items():
        hosts.setdefault(span.host, []).append((span, key))
    by_host = [_jobs_of_host(processes) for processes in hosts.values()]
    if len(set(map(len, by_host))) > 1:  # clocks of hosts differ: which belong together is not known
        return [set(spans)]
    return [set[_Key]().union(*of_hosts) for of_hosts in zip(*by_host, strict=True)]


def _jobs_of_host(processes: Iterable[tuple[Span, _Key]]) -> list[set[_Key]]:
    jobs: list[tuple[set[int], set[_Key]]] = []
    for ranks, keys in _overlapping(processes):
        if not jobs or jobs[-1][0] & ranks:
            jobs.append((ranks, keys))
        else:
            jobs[-1] = jobs[-1][0] | ranks, jobs[-1][1] | keys
    return [keys for _, keys in jobs]


def _overlapping(processes: Iterable[tuple[Span, _Key]]) -> list[tuple[set[int], set[_Key]]]:
    """The ranks and the processes that ran at one time, or at times that others bridge."""
    parts: list[tuple[set[int], set[_Key]]] = []
    latest = float("-inf")
    for span, key in sorted(processes, key=lambda pair: pair[0].began):
        if span.began > latest:
            parts.append((set(), set()))
        parts[-1][0].add(span.rank)
        parts[-1][1].add(key)
        latest = max(latest, span.last)
    return parts
