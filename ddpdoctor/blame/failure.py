"""An exception in a rank, and whether it is the rank's own or only tells of a peer."""

from __future__ import annotations

import re
from dataclasses import dataclass

_OF_A_VICTIM = re.compile(
    r"closed by peer|Connection reset|Broken pipe|Connection refused|remote process exited|ncclRemoteError"
    r"|Socket recv failed|Connection closed|peer.*closed|Timed out waiting \d+ ?ms for (?:send|recv) operation",
    re.IGNORECASE,
)
"""What gloo, NCCL and the store say on a healthy rank whose peer went away, or did not come."""


_AT_A_TIMEOUT = re.compile(
    r"Timed out waiting \d+ ?ms|wait timeout after \d+ ?ms|caught collective operation timeout"
    r"|Timed out after \d+ ?ms waiting|collective operation timed out",
    re.IGNORECASE,
)
"""What they say where the peer did not come in time, and was not seen to go away."""


def tells_of_a_peer(message: str) -> bool:
    """Whether an exception says no more than that a peer was gone or did not come."""
    return bool(_OF_A_VICTIM.search(message))


@dataclass(frozen=True)
class Failure:
    """An exception in a rank."""

    type: str
    message: str
    traceback: str
    time: float
    """Seconds since the epoch, to tell who failed first."""

    @property
    def timed_out(self) -> bool:
        """Whether it waited in a collective until the timeout of the group."""
        return bool(_AT_A_TIMEOUT.search(self.message))

    @property
    def of_a_victim(self) -> bool:
        """Whether it says no more than that a peer was gone or did not come."""
        return tells_of_a_peer(self.message)

    @property
    def at_closed_address(self) -> bool:
        """Whether gloo reached no peer at the address that the store has."""
        return "connectFullMesh failed" in self.message
