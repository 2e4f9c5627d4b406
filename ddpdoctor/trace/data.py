"""How data was loaded: passes over loaders and splits of datasets, put together from events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.data import (
    Batch,
    Loader,
    LoaderPass,
    Sampler,
    Subset,
    Worker,
    WorkersStarted,
)
from ddpdoctor.recorder.events.training import CopyForward, Draws
from ddpdoctor.trace.record import Record, read_numbers
from ddpdoctor.trace.training import TrainingStep


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
    """Whether forwards without autograd or in eval mode, or of an unwrapped copy, an average of the weights for
    instance, happened inside it, and no optimizer step."""
    content: tuple[str, ...] = ()
    """Digests of the first batches drawn."""
    samples: tuple[str | None, ...] = ()
    """Digests of its first samples one by one, in the order in which they were drawn, where batches stack them."""
    length: int | None = None
    """How many samples its largest batch has, of the first ones, as their first tensor tells."""
    wait: float = 0.0
    """Seconds spent waiting for batches."""
    workers: tuple[Worker, ...] = ()
    draws: tuple[Mapping[str, Draws], ...] = ()
    """What loading drew from the global random streams, by batch, of the first that the main process loaded."""

    def covers(self, time: float) -> bool:
        """Whether it was under way then; one that never ended still is."""
        return self.begin <= time and (self.end is None or time <= self.end)


@dataclass(frozen=True)
class Split:
    """A dataset divided in parts at random, by ``random_split``, or as Subset objects over one dataset."""

    at: Where | None
    samples: int
    parts: tuple[Sequence[int], ...] = ()
    """The indices of each part."""
    loaders: tuple[int | None, ...] = ()
    """The loader that each part went to."""


def passes_of(
    record: Record, children: Iterable[Record], steps: Sequence[TrainingStep] = ()
) -> Iterator[Pass]:
    """The passes of a process.

    Args:
        children: the records of its worker processes.
        steps: its training steps, which tell the passes that train from those that evaluate.
    """
    batches: dict[int, list[Batch]] = defaultdict(list)
    for batch in record.events(Batch):
        batches[batch.iteration].append(batch)
    workers = {worker.pid: worker for child in children for worker in child.events(Worker)}
    pids = {started.iteration: started.pids for started in record.events(WorkersStarted)}
    iterations, copies = record.events(LoaderPass), [copy.time for copy in record.events(CopyForward)]
    for iteration in iterations:
        drawn = batches[iteration.id]
        digested = _digested(drawn)
        open_last = iteration.end is None and iteration is iterations[-1]
        training, evaluation = _purpose(iteration, record.last, steps, copies, unknown=open_last)
        yield Pass(
            loader=iteration.loader,
            number=iteration.number,
            at=iteration.at,
            begin=iteration.begin,
            end=iteration.end,
            sampler=iteration.sampler,
            indices=read_numbers(record.file, iteration.indices),
            batches=iteration.batches,
            drawn=iteration.taken if iteration.end is not None or not drawn else drawn[-1].number,
            ended=iteration.ended,
            training=training,
            evaluation=evaluation,
            content=tuple(batch.content or "" for batch in digested),
            samples=tuple(sample for batch in digested for sample in batch.samples),
            length=max((batch.length for batch in digested if batch.length is not None), default=None),
            wait=iteration.wait,
            workers=tuple(workers[pid] for pid in pids.get(iteration.id, ()) if pid in workers),
            draws=tuple(batch.drew for batch in digested if batch.drew is not None),
        )


def _purpose(
    iteration: LoaderPass,
    last: float,
    steps: Sequence[TrainingStep],
    copies: Iterable[float],
    *,
    unknown: bool,
) -> tuple[bool, bool]:
    """Whether a pass trains, and whether it evaluates.

    Args:
        copies: when an unwrapped copy of a wrapped module was called without autograd.
        unknown: whether its training steps were not counted to the end.
    """
    begin, end = iteration.begin, last if iteration.end is None else iteration.end
    updates = (update.time for step in steps for update in step.optimizer_steps)
    unknown = unknown and not iteration.tests
    if iteration.steps > 0 or (unknown and any(begin <= time <= end for time in updates)):
        return True, False
    forwards = (forward for step in steps for forward in step.forwards if begin <= forward.time <= end)
    return False, any(not forward.grad or not forward.training for forward in forwards) or any(
        begin <= time <= end for time in copies
    )


def _digested(batches: list[Batch]) -> list[Batch]:
    """The batches from the first on whose content was digested."""
    first: list[Batch] = []
    for batch in batches:
        if batch.content is None or batch.number != len(first) + 1:
            break
        first.append(batch)
    return first


def splits_of(record: Record) -> Iterator[Split]:
    """The datasets that were divided: by a call of random_split, or by several Subset objects over one."""
    splits: dict[object, list[Subset]] = defaultdict(list)
    for subset in record.events(Subset):
        splits[("over", subset.data) if subset.group is None else subset.group].append(subset)
    loaders = {part: loader.index for loader in reversed(record.events(Loader)) for part in loader.parts}
    for subsets in splits.values():
        if len(subsets) > 1:
            indices = {subset.part: read_numbers(record.file, subset.indices) for subset in subsets}
            known = {part: numbers for part, numbers in indices.items() if numbers is not None}
            yield Split(
                at=subsets[0].at,
                samples=subsets[0].samples or 0,
                parts=tuple(known.values()),
                loaders=tuple(loaders.get(part) for part in known),
            )
