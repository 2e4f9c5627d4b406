"""Which processes of a job take part in its last attempt, where torchrun started its ranks anew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

_Key = TypeVar("_Key")
_Place = tuple[str, int, str]


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
    left = {
        key
        for key, process in workers.items()
        if process.world_size != sizes.get(process.job, process.world_size)
    }
    return ended | left
