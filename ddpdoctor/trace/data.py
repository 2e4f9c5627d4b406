"""Training steps, passes over loaders and splits of datasets, put together from events."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.data import Batch, Loader, LoaderPass, Sampler, Subset, Worker, WorkersStarted
from ddpdoctor.recorder.events.training import (
    Backward,
    Collective,
    CopyForward,
    DetailedStep,
    Drawn,
    Draws,
    Forward,
    MeanLoss,
    Progress,
)
from ddpdoctor.recorder.events.updates import Clip, OptimizerStep, SchedulerStep
from ddpdoctor.trace.record import Record, read_numbers


@dataclass(frozen=True)
class TrainingStep:
    """What happened from one update of the weights to the next: forwards, backwards, optimizer steps.

    Optimizers that step one after the other without a backward between them belong to one training step.
    """

    index: int
    time: float
    forwards: tuple[Forward, ...] = ()
    backwards: tuple[Backward, ...] = ()
    clips: tuple[Clip, ...] = ()
    losses: tuple[MeanLoss, ...] = ()
    draws: tuple[Drawn, ...] = ()
    optimizer_steps: tuple[OptimizerStep, ...] = ()
    schedulers: tuple[SchedulerStep, ...] = ()
    """Those stepped after this update and before the next."""
    collectives: tuple[Collective, ...] = ()
    """Those that the script itself issued, up to the optimizer's step."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds in ``data``, ``forward``, ``backward``, ``step``, ``collective``, without what was waited in them: for
    other ranks, ``waits``, and for a CPU, ``cpu_wait``; without what the recorder took, ``recorder``; as ``total``,
    all between updates."""
    joined: bool = False
    """Whether a Join was active, under which ranks differ by design."""

    @property
    def last_backward(self) -> float:
        """When it was; 0 where there was none."""
        return max((backward.time for backward in self.backwards), default=0.0)


_LISTS: dict[type, str] = {
    Forward: "forwards",
    Backward: "backwards",
    Clip: "clips",
    MeanLoss: "losses",
    Drawn: "draws",
    Collective: "collectives",
}
"""What leads to an update, and the field of a TrainingStep that holds it."""


def steps_of(record: Record) -> tuple[list[TrainingStep], TrainingStep | None, int]:
    """The training steps that were written down, what came after the last update, and how many steps there were."""
    steps: list[TrainingStep] = []
    since: dict[str, Any] = {}
    hyperparameters: dict[int, tuple[Mapping[str, Any], ...]] = {}
    for event in record.together(*_LISTS, DetailedStep, OptimizerStep, SchedulerStep):
        if isinstance(event, DetailedStep):
            since = {}
        elif isinstance(event, SchedulerStep):
            if steps and steps[-1].index == event.step:
                steps[-1] = replace(steps[-1], schedulers=(*steps[-1].schedulers, event))
        elif isinstance(event, OptimizerStep):
            known = hyperparameters.get(event.optimizer, ())
            hyperparameters[event.optimizer] = event.hyperparameters = event.hyperparameters or known
            _add(steps, event, since)
            since = {}
        elif not isinstance(event, Collective) or event.ended:
            name = _LISTS[type(event)]
            since[name] = (*since.get(name, ()), event)
    counted = max((progress.steps for progress in record.events(Progress)), default=0)
    count = max(counted, steps[-1].index + 1 if steps else 0)
    begun = _begin(since)
    return steps, None if begun is None else TrainingStep(count, begun, **since), count


def _begin(since: Mapping[str, Any]) -> float | None:
    """When the first forward or backward since the last update began."""
    events = (*since.get("forwards", ()), *since.get("backwards", ()))
    return min((event.time for event in events), default=None)


def _add(steps: list[TrainingStep], update: OptimizerStep, since: Mapping[str, Any]) -> None:
    """Put an update into its training step, with what led to it."""
    last = steps[-1] if steps else None
    if last is not None and last.index == update.step:
        more = {name: getattr(last, name) + events for name, events in since.items()}
        steps[-1] = replace(last, optimizer_steps=(*last.optimizer_steps, update), **more)
        return
    begun = _begin(since)
    began = update.time if begun is None else min(begun, update.time)
    step = TrainingStep(update.step, began, optimizer_steps=(update,), joined=update.joined, **since)
    steps.append(replace(step, phases=update.phases))


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
    steps: int = 0
    """Training steps that ended inside it, as long as steps are counted."""
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


def passes_of(record: Record, children: Iterable[Record], steps: Sequence[TrainingStep]) -> Iterator[Pass]:
    """The passes of a process, from the records of its worker processes, too; its training steps tell the passes that
    train from those that evaluate."""
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
            steps=iteration.steps,
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
    """Whether a pass trains, and whether it evaluates: by when an unwrapped copy of a wrapped module was called without
    autograd. It is ``unknown`` where its training steps were not counted to the end."""
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
    numbered = enumerate(batches, 1)
    first = takewhile(lambda it: it[1].content is not None and it[1].number == it[0], numbered)
    return [batch for _, batch in first]


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
