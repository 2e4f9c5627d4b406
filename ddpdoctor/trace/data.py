"""How data was loaded: passes over loaders and splits of datasets, put together from events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.data import (
    Batch,
    Iteration,
    Loader,
    Sampler,
    Subset,
    Worker,
    WorkersStarted,
)
from ddpdoctor.trace.numbers import read_numbers
from ddpdoctor.trace.record import Record


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


def passes_of(record: Record, children: Iterable[Record]) -> Iterator[Pass]:
    """The passes of a process.

    Args:
        children: the records of its worker processes.
    """
    batches: dict[int, list[Batch]] = defaultdict(list)
    for batch in record.events(Batch):
        batches[batch.iteration].append(batch)
    workers = {worker.pid: worker for child in children for worker in child.events(Worker)}
    pids = {started.iteration: started.pids for started in record.events(WorkersStarted)}
    for one in record.events(Iteration):
        looked_at = _looked_at(batches[one.id])
        yield Pass(
            loader=one.loader,
            number=one.number,
            at=one.at,
            begin=one.begin,
            end=one.end,
            sampler=one.sampler,
            indices=read_numbers(record.file, one.indices),
            batches=one.batches,
            drawn=one.taken if one.end is not None or not batches[one.id] else batches[one.id][-1].number,
            ended=one.ended,
            training=one.steps > 0,
            content=tuple(batch.content or "" for batch in looked_at),
            samples=tuple(sample for batch in looked_at for sample in batch.samples),
            wait=one.wait,
            workers=tuple(workers[pid] for pid in pids.get(one.id, ()) if pid in workers),
        )


def _looked_at(batches: list[Batch]) -> list[Batch]:
    """The batches from the first on whose content was looked at."""
    first: list[Batch] = []
    for batch in batches:
        if batch.content is None or batch.number != len(first) + 1:
            break
        first.append(batch)
    return first


def splits_of(record: Record) -> Iterator[Split]:
    """The datasets that were divided: by a call of random_split, or by several Subset objects over one."""
    together: dict[object, list[Subset]] = defaultdict(list)
    for part in record.events(Subset):
        together[("over", part.data) if part.group is None else part.group].append(part)
    loaders = {part: loader.index for loader in reversed(record.events(Loader)) for part in loader.parts}
    for parts in together.values():
        if len(parts) > 1:
            indices = [(part, read_numbers(record.file, part.indices)) for part in parts]
            known = [(part, own) for part, own in indices if own is not None]
            yield Split(
                at=parts[0].at,
                samples=parts[0].samples or 0,
                parts=tuple(own for _, own in known),
                loaders=tuple(loaders.get(part.part) for part, _ in known),
            )
