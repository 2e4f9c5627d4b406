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
    def of_a_victim(self) -> bool:
        """Whether it says no more than that a peer was gone or did not come."""
        return tells_of_a_peer(self.message)
