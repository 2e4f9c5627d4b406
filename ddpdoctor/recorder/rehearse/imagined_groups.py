"""Process groups of a job of which only a few ranks are real.

gloo gets groups of the real ranks alone. Python code, the script's and torch's, is told of all ranks: their number, its
own rank among them, and results as if the imaginary ranks held what the real ones hold (``imagined_collectives``). What
torch does in C++ needs no more: the reducer of DistributedDataParallel takes the mean over the real ranks.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from .replacing import Patches, plain
from .simulated_hosts import ImaginedJob


@dataclass(frozen=True)
class Members:
    """The ranks of one process group."""

    ranks: tuple[int, ...]
    """As ranks of the job, in the group's order."""
    rank: int
    """The rank of this process in the group."""
    real: tuple[int, ...]
    """The places in the group of those that are processes, in order."""

    @cached_property
    def players(self) -> tuple[int, ...]:
        """For each place in the group, the process whose content stands there: the real ranks take turns."""
        place = {rank: index for index, rank in enumerate(self.real)}
        return tuple(place.get(rank, rank % len(self.real)) for rank in range(len(self.ranks)))

    def process(self, rank: int) -> int | None:
        """The number among the processes of a rank of the group; None where it is imaginary."""
        return self.real.index(rank) if rank in self.real else None


class ImaginedGroups:
    """Makes groups of the real ranks and remembers of which groups they are a part."""

    def __init__(self, job: ImaginedJob) -> None:
        self._job = job
        self._members: dict[str, Members] = {}
        """By the group's name, which torch keeps unique."""

    def install(self, patches: Patches) -> None:
        """Replace what makes groups, and what tells their size."""
        home, group = torch.distributed.distributed_c10d, torch.distributed.ProcessGroup
        patches.wrap(home, "_new_process_group_helper", self._new_group)
        patches.wrap(home, "_store_based_barrier", self._barrier)
        # The module, since a function has its name.
        patches.wrap(sys.modules["torch.distributed.rendezvous"], "_create_c10d_store", self._create_store)
        patches.wrap(group, "size", self._told(lambda members: len(members.ranks)))
        patches.wrap(group, "rank", self._told(lambda members: members.rank))

    def members(self, group: Any) -> Members | None:
        """The ranks of a group; None where all of them are real, or that is not known."""
        return self._members.get(group.group_name)

    @contextlib.contextmanager
    def among_real(self, group: Any) -> Iterator[Members | None]:
        """Have a group be one of the real ranks alone for a while; answers what it is otherwise."""
        members = self._members.pop(group.group_name, None)
        try:
            yield members
        finally:
            if members is not None:
                self._members[group.group_name] = members

    def _new_group(
        self, original: Any, size: int, rank: int, ranks: Sequence[int], *args: Any, **kwargs: Any
    ) -> Any:
        everybody = tuple(ranks) or tuple(range(size))
        places = tuple(place for place, member in enumerate(everybody) if member in self._job.real)
        if rank not in places:  # no member; or a rank that the launcher gave to nobody
            return plain(original, (size, rank, ranks, *args), kwargs)
        members = Members(everybody, rank, places)
        made = plain(original, (len(places), members.process(rank), ranks, *args), kwargs)
        if len(places) < len(everybody):
            self._members[made[0].group_name] = members
        return made

    def _barrier(
        self, original: Any, rank: int, store: Any, name: str, count: int, *args: Any, **kwargs: Any
    ) -> None:
        members = self._members.get(name)
        everybody = len(self._job.real) if count == self._job.size else count
        taking_part = len(members.real) if members and count == len(members.ranks) else everybody
        plain(original, (rank, store, name, taking_part, *args), kwargs)

    def _create_store(
        self, original: Any, host: str, port: int, rank: int, world_size: int, *args: Any, **kwargs: Any
    ) -> Any:
        """The store's server waits for as many clients as it is told of."""
        clients = len(self._job.real) if world_size == self._job.size else world_size
        return plain(original, (host, port, rank, clients, *args), kwargs)

    def _told(self, number: Callable[[Members], int]) -> Callable[..., int]:
        def told(original: Any, group: Any) -> int:
            members = self.members(group)
            return int(original(group)) if members is None else number(members)

        return told
