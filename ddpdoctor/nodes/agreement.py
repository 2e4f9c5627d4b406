"""What the hosts of a job agree on while it runs: whether it hangs, and whether it is over."""

from __future__ import annotations

import time
from enum import Enum

from ddpdoctor.nodes.meeting import Nodes

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
    """Of one run, as one host sees it."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._broke: float | None = None
        self.tell(RunState.MOVES)

    def tell(self, state: RunState) -> None:
        """Tell the others what the ranks of this host do."""
        self._nodes.status[_RUN] = state.value

    def all_still(self) -> bool:
        """Whether on no other host anybody works, as far as all of them are there to say so."""
        if self._nodes.lost():
            return False
        states = [status.get(_RUN) for status in self._nodes.statuses().values()]
        return all(state in (RunState.STILL, RunState.OVER, RunState.FAILED) for state in states)

    def is_over(self, victim_seconds: float) -> bool:
        """Whether a rank of another host failed, or the host was lost, and the ranks here had time to say so."""
        states = [status.get(_RUN) for status in self._nodes.statuses().values()]
        lost = self._nodes.lost_since()
        if lost is None and RunState.FAILED not in states:
            self._broke = None  # the launcher may start all ranks anew
            return False
        if self._broke is None:
            # The ranks here had the time, too, for which nothing was heard of the host.
            self._broke = time.monotonic() if lost is None else lost
        return time.monotonic() - self._broke > (victim_seconds if lost is None else LOST_SECONDS)
