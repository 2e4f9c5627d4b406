"""How data was loaded: samplers, loaders, passes, workers and splits. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ddpdoctor.model import Where


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
    drop_last: bool | None = None
    total: int | None = None
    """total_size: all ranks' samples with padding."""
    at: Where | None = None
    """Where it was constructed, where that was seen."""


@dataclass(frozen=True)
class Loader:
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
    """Digest of what the innermost dataset holds, in order, where that can be told cheaply: its list of files,
    labels or tensors."""
    replaced: str | None = None
    """The class of the sampler that the script gave, where another one draws."""


@dataclass(frozen=True)
class Worker:
    """A DataLoader worker process."""

    loader: int
    worker: int
    """Its number, from 0."""
    seeds: Mapping[str, str] = field(default_factory=dict)
    """Digests of the random states with which it began to load: ``torch``, ``python``, ``numpy``."""
    samples: tuple[str, ...] = ()
    """Digests of its first samples."""
    drew: tuple[str, ...] = ()
    """Which of these random states moved while it loaded its first samples; empty where nothing drew."""


@dataclass(frozen=True)
class Pass:
    """One iteration over a DataLoader from its beginning."""

    loader: int
    number: int
    """Of this loader, from 0."""
    at: Where | None
    """The loop."""
    begin: float
    end: float | None = None
    sampler: Sampler | None = None
    """As it was when the pass began."""
    indices: Sequence[int] | None = None
    """The samples of the whole pass in the order in which this rank would draw them, as positions in the innermost
    dataset, looked through Subset; None where it streams."""
    batches: int | None = None
    """How many the whole pass has on this rank; None where that cannot be known before."""
    drawn: int = 0
    """How many the loop took."""
    ended: str = "open"
    """``exhausted``: to its end; ``left``: the loop was left; ``shortened``: by fast-forward; ``open``: never."""
    training: bool = False
    """Whether an optimizer stepped inside it."""
    evaluation: bool = False
    """Whether forwards without autograd, or in eval mode, happened inside it, and no optimizer step."""
    content: tuple[str, ...] = ()
    """Digests of the first batches drawn."""
    samples: tuple[str | None, ...] = ()
    """Digests of its first samples one by one, in the order in which they were drawn, where batches stack them."""
    wait: float = 0.0
    """Seconds spent waiting for batches."""
    workers: tuple[Worker, ...] = ()


@dataclass(frozen=True)
class Split:
    """A dataset divided in parts at random, by ``random_split``, or as Subset objects over one dataset."""

    at: Where | None
    samples: int
    parts: tuple[Sequence[int], ...] = ()
    """The indices of each part."""
    loaders: tuple[int | None, ...] = ()
    """The loader that each part went to."""
