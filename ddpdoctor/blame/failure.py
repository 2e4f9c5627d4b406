"""An exception in a rank, and whether it is the rank's own or only tells of a peer."""

from __future__ import annotations

from dataclasses import dataclass

from ddpdoctor.blame.frames import Frame, frames_of, is_of_script
from ddpdoctor.failures import VICTIM, Says, is_of_another_service, says


def tells_of_a_peer(*chain: tuple[str, tuple[Frame, ...]]) -> bool:
    """Whether an exception says no more than that a peer was gone or did not come.

    Args:
        chain: ``Type: message`` and the frames of the exception, then of the one that caused it, and so on.
    """
    texts = [text for text, _ in chain]
    if asked_the_store(*chain[0]) or is_of_another_service(texts, (own[-1].file for _, own in chain if own)):
        return False
    return any(says(text, *VICTIM) for text in texts)


def asked_the_store(text: str, frames: tuple[Frame, ...]) -> bool:
    """Whether the script itself waited for a key of the store, which is no collective."""
    return text.partition(":")[0].endswith("DistStoreError") and any(map(is_of_script, frames[-1:]))


@dataclass(frozen=True)
class Failure:
    """An exception in a rank."""

    type: str
    message: str
    traceback: str
    time: float
    """Seconds since the epoch, to tell who failed first."""

    @property
    def text(self) -> str:
        """``Type: message``."""
        return f"{self.type}: {self.message}"

    @property
    def timed_out(self) -> bool:
        """Whether it waited for the others until the timeout of the group."""
        return says(self.text, Says.PEER_LATE)

    @property
    def of_a_victim(self) -> bool:
        """Whether it says no more than that a peer was gone or did not come."""
        return tells_of_a_peer((self.text, frames_of(self.traceback)))

    @property
    def at_closed_address(self) -> bool:
        """Whether gloo reached no peer at the address that the store has."""
        return "connectFullMesh failed" in self.message
