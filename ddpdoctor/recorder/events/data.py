"""How data is loaded: samplers, loaders, iterations over them, workers, and datasets that are divided."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..where import Where
from .schema import Event
from .training import Draws


@dataclass(frozen=True)
class Integers:
    """A list of integers: in the event, evenly spaced, or in the file of numbers beside the record."""

    count: int
    values: tuple[int, ...] = ()
    """All of them, of a short list."""
    first: int = 0
    step: int = 0
    """From each to the next, where they are evenly spaced; else 0."""
    offset: int | None = None
    """Where they begin in the file, in bytes."""
    type: str = "q"
    """``i`` or ``q``, as in :mod:`array`."""


@dataclass(frozen=True)
class Sampler:
    """What decides which samples a rank draws."""

    name: str
    """Its class, inside a batch sampler too."""
    distributed: bool = False
    """Whether it divides the samples among ranks: it has rank and num_replicas."""
    rank: int | None = None
    replicas: int | None = None
    seed: int | None = None
    epoch: int | None = None
    """When the pass began; None where it has no set_epoch."""
    shuffle: bool | None = None
    replacement: bool = False
    total: int | None = None
    """total_size: all ranks' samples with padding."""
    at: Where | None = None
    """Where it was constructed, where that was seen."""


@dataclass(slots=True)
class LoaderMade(Event):
    """A DataLoader was constructed; it may never be iterated."""

    made: int
    """Which one it is, in order."""
    data: int
    """Which dataset it was given: a number for each object."""
    sampler: str | None = None
    """The class of the sampler or batch sampler that it was given."""


@dataclass(slots=True)
class Loader(Event):
    """A DataLoader that was iterated."""

    index: int
    """In order of first iteration, which is the same on every rank of a right program."""
    at: Where | None
    """Where it was constructed."""
    dataset: str
    """The class of the dataset, looked through Subset."""
    samples: int | None = None
    """len(dataset), of a Subset its own; None for one that streams."""
    streams: bool = False
    """Whether the dataset is an IterableDataset."""
    batch_size: int | None = None
    drop_last: bool = False
    workers: int = 0
    sampler: Sampler | None = None
    """As it was at the first iteration."""
    content: str | None = None
    """Digest of what the innermost dataset holds, in order, if cheaply told: its list of files, labels or tensors."""
    made: int = -1
    """Which one it is of all that were constructed."""
    data: int = -1
    """Which dataset it was given: a number for each object."""
    holds: tuple[int, ...] = ()
    """Loaders that were given the samplers which this one draws from, by their ``made``."""
    parts: tuple[int, ...] = ()
    """The Subsets that its dataset is, or holds."""
    ignores_index: bool = False
    """Whether the dataset takes samples of its own choice, whatever index the sampler draws."""


@dataclass(slots=True)
class LoaderPass(Event):
    """One pass over a DataLoader: when it draws its first indices, and again when it ends."""

    KEY: ClassVar[str] = "id"

    id: int
    loader: int
    number: int
    """Of this loader, from 0."""
    at: Where | None
    """The loop."""
    begin: float
    end: float | None = None
    ended: str = "open"
    """``exhausted``: to its end; ``left``: the loop was left; ``shortened``: by fast-forward; ``open``: never."""
    sampler: Sampler | None = None
    """As it was when it began."""
    indices: Integers | None = None
    """The samples of the whole iteration in the order in which this rank would draw them."""
    batches: int | None = None
    """How many the whole iteration has on this rank."""
    taken: int = 0
    """Batches that the loop took."""
    wait: float = 0.0
    """Seconds spent waiting for batches."""
    steps: int = 0
    """Training steps inside it."""
    tests: bool = False
    """Whether a batch of it was for a forward without autograd, and the next forward that learns for another's."""


@dataclass(slots=True)
class Batch(Event):
    """The loop took a batch; all at the beginning are told, later ones at growing intervals."""

    iteration: int
    number: int
    """From 1."""
    content: str | None = None
    """Its digest."""
    samples: tuple[str | None, ...] = ()
    """Digests of its samples, of the first ones of a loader."""
    drew: Mapping[str, Draws] | None = None
    """What loading its samples drew from the global random streams: of the first that the main process loads."""
    length: int | None = None
    """The first dimension of its first tensor, of those at the beginning."""


@dataclass(slots=True)
class WorkersStarted(Event):
    """Worker processes were started for an iteration."""

    iteration: int
    pids: tuple[int, ...]


@dataclass(slots=True)
class Worker(Event):
    """A DataLoader worker process, as it tells itself."""

    KEY: ClassVar[str] = "pid"

    worker: int
    """Its number, from 0."""
    seeds: Mapping[str, str] = field(default_factory=dict)
    """Digests of the random states with which it began to load: ``torch``, ``python``, ``numpy``."""
    samples: tuple[str, ...] = ()
    """Digests of its first samples."""
    drew: tuple[str, ...] = ()
    """Which of these random states moved while it loaded its first samples; empty where nothing drew."""
    pid: int = 0


@dataclass(slots=True)
class Subset(Event):
    """A Subset was constructed."""

    part: int
    """Which one it is, in order."""
    data: int
    """Which dataset it is a part of: a number for each object."""
    samples: int | None
    """Of the innermost dataset."""
    indices: Integers | None
    """As positions in the innermost dataset."""
    group: int | None = None
    """The call of random_split that made it."""
    at: Where | None = None
