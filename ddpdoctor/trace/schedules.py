"""Learning-rate schedules whose length counts the batches of the undivided dataset."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from ddpdoctor.model import Where
from ddpdoctor.program import Expression, Program
from ddpdoctor.program.known import is_size
from ddpdoctor.recorder.events.data import Loader, LoaderPass
from ddpdoctor.recorder.events.updates import SchedulerStep
from ddpdoctor.trace.lines import program_of
from ddpdoctor.trace.recording import Recording

_LOADER = "torch.utils.data.DataLoader"


@dataclass(frozen=True)
class TooLong:
    """A schedule that a whole run leaves at its first part."""

    last: SchedulerStep
    """The last step of it that was recorded."""
    length: int
    """Its length in steps."""
    loader: Loader
    """The loader, of whose undivided dataset this is the number of batches."""


def counted_undivided(recordings: Mapping[int, Recording]) -> list[TooLong]:
    """The schedules of a whole run that end when the undivided dataset would, by their own length and by the text.

    Both have to say so: a schedule may be longer than a run on purpose, and then its length is made of something else.
    """
    recording = next(iter(recordings.values()))
    by_scheduler = {it.scheduler: it for step in recording.steps for it in step.schedulers}
    passes = [it for it in recording.events(LoaderPass) if it.steps]
    trained = {it.loader for it in passes}
    loaders = {it.index: it for it in recording.events(Loader) if it.index in trained}
    found = []
    for last in by_scheduler.values():
        if last.made is None or last.by:  # accelerate steps a schedule of the undivided batches as often
            continue
        for index, loader in loaders.items():
            whole = [it.batches for it in passes if it.loader == index and it.ended == "exhausted"]
            length = _length(last, loader, whole)
            if length and _is_counted(program_of(last.made, recordings), last.made, loader):
                found.append(TooLong(last, length, loader))
    return found


def _length(last: SchedulerStep, loader: Loader, whole: Sequence[int | None]) -> int | None:
    """Which of a scheduler's numbers is as many steps as it would have taken with the undivided dataset."""
    sampler, batches, passes = loader.sampler, whole[0] if len({*whole}) == 1 else None, len(whole)
    divided = sampler is not None and sampler.distributed and (sampler.replicas or 1) > 1
    if not (divided and last.epoch and batches and loader.samples and loader.batch_size):
        return None
    wanted = last.epoch * loader.samples / loader.batch_size / batches
    # Each pass may be rounded by less than a step.
    return next((it for it in last.lengths if abs(it - wanted) <= passes and it > last.epoch + passes), None)


def _is_counted(program: Program, made: Where, loader: Loader) -> bool:
    """Whether a scheduler, or the function that makes it, is given a number that comes from the size of the dataset,
    and from neither the loader that divides it nor the number of ranks."""
    loads = {call.node: call.argument(0, "dataset") for call in program.calls_at(loader.at)}
    datasets = {it.identity for it in loads.values() if it} - {0}
    for place in ([made], program.callers(made)):
        given = [it for at in place for call in program.calls_at(at) for it in call.arguments]
        parts = [*chain.from_iterable(it.made_of() for it in given)]
        sizes = [it.arguments[0] for it in parts if "builtins.len" in it.called and it.arguments]
        measured = {data.identity for it in sizes for data in (it, *_undivided(it))}
        divided = any(value and value.node in loads for it in sizes for value in it.values)
        by_size = any(is_size(source.name) for it in given for source in it.origins.sources)
        if divided or by_size:
            return False
        if not datasets.isdisjoint(measured):
            return True
    return False


def _undivided(value: Expression) -> Iterator[Expression]:
    """What a loader loads that has no sampler."""
    for loader in filter(None, value.values):
        samplers = (loader.argument(None, it) for it in ("sampler", "batch_sampler"))
        if _LOADER in loader.called and not any(samplers):
            yield from filter(None, [loader.argument(0, "dataset")])
