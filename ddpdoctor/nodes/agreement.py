"""What the hosts of a job agree on while it runs: whether it hangs, and whether it is over."""

import time
from collections.abc import Collection, Iterator
from enum import Enum

from ddpdoctor.nodes.meeting import RANKS, Nodes
from ddpdoctor.text import ranks_phrase

LOST_SECONDS = 2.0
"""After a host was lost, for its peers' ranks to say what they saw."""
_RUN = "run"


class RunState(str, Enum):
    """What the ranks of one host do."""

    MOVES = "moves"
    STILL = "still"
    """Nobody works, and somebody waits."""
    FAILED = "failed"
    """A rank has failed."""
    OVER = "over"
    """None is left."""


class Agreement:
    """Of one run, as one host sees it; the job can lose ``spare`` hosts, where its ranks are started anew."""

    def __init__(self, nodes: Nodes, spare: int = 0) -> None:
        self._nodes, self._spare = nodes, spare
        self._broke: float | None = None
        self._reported: set[int] = set()
        self._ranks: Collection[int] = ()
        self._world_size = 0
        self.tell(RunState.MOVES)

    def tell(self, state: RunState, ranks: Collection[int] = (), world_size: int = 0) -> None:
        """Tell the others what the ranks of this host do, and the job's size as they know it."""
        self._ranks, self._world_size = ranks, world_size
        self._nodes.status.update({_RUN: state.value, RANKS: sorted(ranks)})

    def newly_lost(self) -> Iterator[str]:
        """A sentence about each host that was lost since this was asked last."""
        for node, why in self._nodes.lost().items():
            if node not in self._reported:
                self._reported.add(node)
                host, ranks = self._nodes.name(node), self._nodes.ranks(node)
                yield f"host {host}{f' ({ranks_phrase(ranks)})' if ranks else ''} was lost: {why}"

    def all_still(self) -> bool:
        """Whether on no other host anybody works, as far as all that have ranks are there to say so."""
        if self._nodes.lost() and not self._has_all_ranks():
            return False
        states = [status.get(_RUN) for status in self._nodes.statuses().values()]
        return all(state in (RunState.STILL, RunState.OVER, RunState.FAILED) for state in states)

    def is_over(self, victim_seconds: float, *, restarts: bool = False) -> bool:
        """Whether a rank of another host failed, or the host was lost, and the ranks here had time to say so;
        ``restarts`` says whether the launcher may start the ranks anew without a host that was lost."""
        states = [status.get(_RUN) for status in self._nodes.statuses().values()]
        # Whether the job does without the hosts that were lost, or may do so soon.
        goes_on = len(self._nodes.lost()) <= self._spare and (restarts or self._has_all_ranks())
        lost = None if goes_on else self._nodes.lost_since()
        if lost is None and RunState.FAILED not in states:
            self._broke = None  # the launcher may start all ranks anew
            return False
        if self._broke is None:
            # The ranks here had the time, too, for which nothing was heard of the host.
            self._broke = time.monotonic() if lost is None else lost
        return time.monotonic() - self._broke > (victim_seconds if lost is None else LOST_SECONDS)

    def _has_all_ranks(self) -> bool:
        """Whether the hosts that are left have all ranks of the job: it was started anew without the others."""
        others = (status.get(RANKS, ()) for status in self._nodes.statuses().values())
        return 0 < self._world_size == len({*self._ranks}.union(*others))
