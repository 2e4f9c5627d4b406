"""A job that stands still, as it was when somebody looked: each process, where it is and what it waits for; and one
rank's dump of PyTorch's flight recorder, reduced to what comparing ranks needs.

Plain data: :mod:`ddpdoctor.hang.capture` takes it, a folder keeps it, checks judge it. A thousand ranks have millions
of entries, so a collective is kept as its number and the fingerprint of its signature (operation, shapes, dtypes); in
full only where a rank stands and where it was last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.thresholds import MOST_WAKES


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


class ProcessRole(str, Enum):
    """What a process is to its job."""

    RANK = "rank"
    WORKER = "worker"
    """Of a DataLoader, or another child of a rank."""


class Doing(str, Enum):
    """What a process did while it was looked at."""

    COMPUTES = "computes"
    """It used its CPU, or stood in the queue for one."""
    DISK = "disk"
    """It waited for a disk, or read and wrote."""
    SLEEPS = "sleeps"
    """In a sleep that ends by itself."""
    WAITS = "waits"
    """For something that another has to do: a peer, a lock, a pipe, a child."""
    STOPPED = "stopped"
    """By SIGSTOP, or under a debugger."""
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class ActiveException:
    """An exception that a thread was handling: it stood in an ``except``, a ``finally``, or the end of a ``with``."""

    type: str
    message: str
    """Its first line."""
    frames: tuple[Frame, ...]
    """The script's own through which it came, outermost first."""
    tried: Frame
    """The line through which it came to who handles it."""
    holder: Frame
    """The line on which the same function stood since."""


@dataclass(frozen=True)
class SampledProcess:
    """One process of the job."""

    pid: int
    rank: int | None
    """In the whole job; of a worker, its rank's."""
    role: ProcessRole = ProcessRole.RANK
    host: str = ""
    command: str = ""
    doing: Doing = Doing.UNKNOWN
    call: str = ""
    """The system call its main thread stands in, and on what: ``read of a pipe``, ``futex``; empty if unseen."""
    stack: tuple[Frame, ...] = ()
    """Of its main thread, outermost first, without the frames of our recorder."""
    again: tuple[Frame, ...] = ()
    """The same a moment later: equal where it stands, different where it works; empty where nobody looked twice."""
    native: tuple[str, ...] = ()
    """The native functions below the innermost frame, outermost first, as ``c10d::Reducer::finalize_backward
    (libtorch_cpu.so)``; empty where py-spy does not see them, or the process does not stand."""
    wakes: float = 0.0
    """How often in a second its main thread began to run: who is blocked does not, who works in short steps does."""
    changes: bool = False
    """Whether variables of its frames changed from one look to the next, as they do where it goes on."""
    from_interpreter: bool = False
    """Whether the interpreter wrote the stack itself, since py-spy was not allowed to look."""
    unseen: str = ""
    """Why there is no stack, and what to do."""
    exit_status: int | None = None
    """Where it has ended and that is known; negative for a signal."""
    peer: int | None = None
    """The rank that its call of torch.distributed names as source or destination, where its stack was read."""
    handles: ActiveException | None = None
    """By our recorder; None where that is not in there."""

    @property
    def stands(self) -> bool:
        """Whether both looks found it in the same place, and it did not work meanwhile."""
        blocked = self.doing is Doing.WAITS and self.wakes <= MOST_WAKES
        still = self.stack == self.again and not self.changes
        return still and (blocked or self.doing in (Doing.SLEEPS, Doing.STOPPED))


@dataclass(frozen=True)
class HangSnapshot:
    """The processes of a job when it was looked at."""

    processes: tuple[SampledProcess, ...] = ()
    seconds: float = 0.0
    """Since the last sign of progress; 0 where nobody had watched."""
    world_size: int | None = None
    timeout: float | None = None
    """Of the default process group, in seconds, where it is known."""
    flight: Mapping[int, Dump] = field(default_factory=dict)
    """What the flight recorders hold, by rank; empty where they are switched off or cannot be read."""
    unseen: tuple[str, ...] = ()
    """What could not be looked at, each a sentence for the report: hosts, processes of other users, dumps."""

    @property
    def ranks(self) -> dict[int, SampledProcess]:
        """The process of each rank that was seen."""
        return {it.rank: it for it in self.processes if it.role is ProcessRole.RANK and it.rank is not None}
