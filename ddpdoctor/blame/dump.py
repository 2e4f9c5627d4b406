"""One rank's dump of PyTorch's flight recorder, reduced to what comparing ranks needs. Plain data.

A thousand ranks have millions of entries, so a collective is kept as its number and the fingerprint of its
signature (operation, shapes, dtypes); in full only where a rank stands and where it was last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddpdoctor.blame.frames import Frame


@dataclass
class Ring:
    """The collectives of one rank in one group, in the order of their sequence numbers."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    """Sequence numbers, ascending."""
    signatures: array[int] = field(default_factory=lambda: array("Q"))
    """Of each, the fingerprint of its signature, a key of the dump's ``texts``."""

    def signature_at(self, number: int) -> int | None:
        """What was called at a position; None where the ring does not have it."""
        place = bisect_left(self.numbers, number)
        if place == len(self.numbers) or self.numbers[place] != number:
            return None
        return self.signatures[place]


@dataclass(frozen=True)
class Group:
    """A process group as a rank knows it."""

    name: str
    description: str = ""
    ranks: tuple[int, ...] = ()
    """Its members; empty where the dump does not say, as gloo's."""
    enqueued: int | None = None
    """The last sequence number that was given out; None where the dump does not say."""
    completed: int | None = None


@dataclass(frozen=True)
class Entry:
    """One collective, or one half of a point-to-point operation, in full."""

    rank: int
    group: str
    number: int
    operation: str
    shapes: str = ""
    dtypes: str = ""
    state: str = ""
    frames: tuple[Frame, ...] = ()
    """Innermost first, as torch writes them."""
    position: int = 0
    """Among all entries of its rank, in the order in which they were called."""
    peer: int | None = None
    """Of a send or a receive: the other's rank within the group."""
    turn: int = 0
    """Of a send or a receive: how many of its kind with this peer the dump holds up to it."""
    batched: bool = False
    """Of a send or a receive: whether it was issued together with others, and completes with them."""


@dataclass(frozen=True)
class Dump:
    """What one rank left."""

    rank: int
    file: Path
    host: str = ""
    groups: Mapping[str, Group] = field(default_factory=dict)
    rings: Mapping[str, Ring] = field(default_factory=dict)
    """By the name of the group."""
    texts: Mapping[int, str] = field(default_factory=dict)
    """The signatures by their fingerprints."""
    waits: tuple[Entry, ...] = ()
    """What did not complete: the oldest collective of each group, and sends and receives; oldest first."""
    last: Mapping[str, Entry] = field(default_factory=dict)
    """The last collective of each group."""
    traffic: Mapping[tuple[str, str, int], int] = field(default_factory=dict)
    """How many sends or receives the dump holds, by group, operation and peer within the group."""
    wrapped: bool = False
    """Whether the recorder dropped its oldest entries to make room."""

    def came_to(self, group: str) -> int:
        """The last collective of a group that this rank called; 0 where it called none.

        What the recorder tells apart from its entries counts only where it holds none of the group: gloo's number
        counts sends and receives too.
        """
        ring = self.rings.get(group)
        if ring and ring.numbers:
            return ring.numbers[-1]
        return self.groups.get(group, Group(group)).enqueued or 0

    def call_at(self, group: str, number: int) -> str | None:
        """The signature of what was called at a position of a group; None where the dump does not have it."""
        ring = self.rings.get(group)
        signature = ring.signature_at(number) if ring else None
        return None if signature is None else self.texts[signature]
