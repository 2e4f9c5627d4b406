"""What the recorder saw of one rank, as a check reads it. Plain data, no torch.

Times are seconds on CLOCK_MONOTONIC, which all processes of one host share.
"""

from __future__ import annotations

from bisect import bisect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeAlias

from ddpdoctor.blame.frames import from_here
from ddpdoctor.recorder.events.data import Loader, LoaderPass, Subset
from ddpdoctor.recorder.events.files import FileEvent, Load, PathAsked, Save, StateLoad
from ddpdoctor.recorder.events.process import Device, Exit, GroupEvent, Note, Raised, Start
from ddpdoctor.recorder.events.training import Backward, Collective, Forward, Wrapper
from ddpdoctor.recorder.events.updates import Optimizer, OptimizerStep
from ddpdoctor.text import uncoloured
from ddpdoctor.trace.data import Pass, Split, TrainingStep, passes_of, splits_of, steps_of
from ddpdoctor.trace.lines import RankLines, lines_of
from ddpdoctor.trace.record import E, Record, is_missing

Identity: TypeAlias = tuple[object, ...]
"""Of an optimizer: the same on every rank that has it."""


class Events(Generic[E]):
    """An attribute of a recording: all its events of a kind, in their order."""

    def __init__(self, kind: type[E]) -> None:
        self.kind = kind

    def __get__(self, recording: Recording, owner: type[Recording]) -> tuple[E, ...]:
        return recording.events(self.kind)


@dataclass(frozen=True)
class Recording:
    """One rank's process, from its start to its end."""

    pid: int = 0
    parent: int = 0
    host: str = ""
    torch: str = ""
    script: str = ""
    """The main script, as lines of it name its file; ``-m`` where it was not known yet."""
    started: float = 0.0
    clock: float = 0.0
    """What makes one of its times, which are its host's, into seconds since the epoch."""
    environ: Mapping[str, str] = field(default_factory=dict)
    """The launcher's variables when it started."""
    steps: tuple[TrainingStep, ...] = ()
    """The training steps that were written down: all of a short run; of a long one the first, and then some."""
    step_count: int = 0
    """How many training steps there were."""
    trailing: TrainingStep | None = None
    """What came after the last update: forwards and backwards whose gradients no optimizer used."""
    passes: tuple[Pass, ...] = ()
    splits: tuple[Split, ...] = ()
    raised: Raised | None = None
    exit: Exit | None = None
    last: float = 0.0
    """The time of its last event."""
    record: Record = field(default_factory=Record)
    """All its events."""
    children: tuple[Record, ...] = ()
    """The records of its DataLoader workers."""

    groups = Events(GroupEvent)
    wrappers = Events(Wrapper)
    optimizers = Events(Optimizer)
    loaders = Events(Loader)
    saves = Events(Save)
    loads = Events(Load)
    state_loads = Events(StateLoad)
    collectives = Events(Collective)
    """All that the script issued, inside training steps and outside; of a line that comes often not every one."""
    devices = Events(Device)

    def events(self, kind: type[E]) -> tuple[E, ...]:
        """The events of a kind, in their order."""
        return self.record.events(kind)

    @cached_property
    def lines(self) -> RankLines:
        """The lines of the script that it reached."""
        return lines_of(self.record)

    @cached_property
    def files(self) -> tuple[FileEvent, ...]:
        """Files that it or its workers wrote, made, removed or locked, without those of ``torch.save``."""
        saved = {save.path for save in self.saves}
        events = sorted(self._with_workers(FileEvent), key=lambda event: event.time)
        return tuple(event for event in events if event.action != "write" or event.path not in saved)

    @cached_property
    def asked(self) -> tuple[PathAsked, ...]:
        """The paths of which it or its workers asked whether they exist."""
        return tuple(sorted(self._with_workers(PathAsked), key=lambda event: event.time))

    def _with_workers(self, kind: type[E]) -> list[E]:
        return [event for record in (self.record, *self.children) for event in record.events(kind)]

    def group_events(self, action: str) -> tuple[GroupEvent, ...]:
        """What it did with process groups, of one :attr:`GroupEvent.action`."""
        return tuple(event for event in self.groups if event.action == action)

    @property
    def joinings(self) -> tuple[GroupEvent, ...]:
        """Its calls of init_process_group, also those that raised or did not return."""
        return tuple(event for event in self.groups if event.action in ("joining", "refused", "init"))

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the recorder could not do, and what of its record could not be read."""
        unread = self.record.malformed
        lines = (Note("record", f"{len(unread)} of its lines cannot be read: {unread[0]}"),) if unread else ()
        return (*self.events(Note), *lines)

    @property
    def lacks_indices(self) -> bool:
        """Whether sample indices that it stored beside its record are not there."""
        described = [it.indices for it in self.events(LoaderPass)]
        described += [it.indices for it in self.events(Subset)]
        return any(is_missing(self.record.file, indices) for indices in described)

    @cached_property
    def all_steps(self) -> tuple[TrainingStep, ...]:
        """The training steps that were written down, and what came after the last update."""
        return (*self.steps, self.trailing) if self.trailing else self.steps

    @cached_property
    def wrapper_of_parameter(self) -> dict[str, int]:
        """The index of the wrapper that holds each parameter, by the parameter's key."""
        return {parameter.key: wrapper.index for wrapper in self.wrappers for parameter in wrapper.parameters}

    @cached_property
    def identities(self) -> dict[int, Identity]:
        """What each optimizer updates: wrapped models, or parameters by their names."""
        held = self.wrapper_of_parameter
        before: Counter[Identity] = Counter()
        identities: dict[int, Identity] = {}
        for optimizer in self.optimizers:
            wrappers = frozenset(held[key] for key in optimizer.keys if key in held)
            what: Identity = ("wrappers", wrappers) if wrappers else ("parameters", *optimizer.keys)
            identities[optimizer.index] = (*what, before[what])
            before[what] += 1
        return identities

    @cached_property
    def steps_by_identity(self) -> dict[Identity, TrainingStep]:
        """The training steps, by what their first optimizer updates and how often it has."""
        steps: dict[Identity, TrainingStep] = {}
        for step in self.steps:
            first = step.optimizer_steps[0] if step.optimizer_steps else OptimizerStep(-1, step.time, None)
            number = step.index if first.number is None else first.number
            what = self.identities.get(first.optimizer, (first.optimizer,))
            steps[what, first.wrappers, number] = step
        return steps

    @property
    def forwards(self) -> tuple[Forward, ...]:
        """The forwards in :attr:`all_steps`."""
        return tuple(forward for step in self.all_steps for forward in step.forwards)

    @property
    def backwards(self) -> tuple[Backward, ...]:
        """The backwards in :attr:`all_steps`."""
        return tuple(backward for step in self.all_steps for backward in step.backwards)

    @cached_property
    def updates(self) -> tuple[OptimizerStep, ...]:
        """The updates in :attr:`steps`."""
        return tuple(update for step in self.steps for update in step.optimizer_steps)

    @cached_property
    def evaluation_forwards(self) -> tuple[Forward, ...]:
        """Forwards that only evaluate, inside training steps that were written down and outside; not every one."""
        return tuple(forward for forward in self.events(Forward) if not self.learns(forward))

    def learns(self, forward: Forward) -> bool:
        """Whether a forward may lead to a backward: autograd is on, and it does not only evaluate."""
        evaluates = not forward.training and forward.at is not None and forward.at.place in self._evaluating
        return forward.grad and not evaluates

    @cached_property
    def _evaluating(self) -> frozenset[tuple[str, int | None]]:
        """Lines of which no eval-mode forward came last ahead of a backward, of a model that trains in train mode."""
        forwards = [it for it in self.forwards if it.grad and it.at]
        times = [it.time for it in forwards]
        led = [forwards[bisect(times, it.time) - 1] for it in self.backwards if times and it.time > times[0]]
        trained = {it.at.place for it in led if it.at and not it.training}
        is_sure = any(it.training for it in led)
        return frozenset(it.at.place for it in forwards if is_sure and it.at) - trained

    @property
    def training_passes(self) -> tuple[Pass, ...]:
        """The passes in which an optimizer stepped."""
        return tuple(pass_ for pass_ in self.passes if pass_.training)

    @property
    def rank(self) -> int | None:
        """Its rank in the default group; before there is one, what the launcher gave it; None without both."""
        for event in self.groups:
            if event.action == "init":
                return event.rank
            if "rank" in event.arguments:
                return int(event.arguments["rank"])
        text = self.environ.get("RANK", "")
        return int(text) if text.isdigit() else None

    def loader(self, index: int) -> Loader | None:
        """The DataLoader with this index; None where it was not written down."""
        return next((loader for loader in self.loaders if loader.index == index), None)

    def optimizer(self, index: int) -> Optimizer | None:
        """The optimizer with this index; None where it was not written down."""
        return next((optimizer for optimizer in self.optimizers if optimizer.index == index), None)

    def wrapper(self, index: int | None) -> Wrapper | None:
        """The wrapper with this index, which one that failed leaves to the next; None where it was not written down."""
        return next((wrapper for wrapper in reversed(self.wrappers) if wrapper.index == index), None)


def recording_of(record: Record, children: Sequence[Record] = ()) -> Recording:
    """What a record tells of its process, and those of its workers."""
    start = next(iter(record.events(Start)), Start(0, 0.0))
    raised = record.events(Raised)[-1:]
    steps, trailing, count = steps_of(record)
    recording = Recording(
        pid=start.pid,
        parent=start.parent,
        host=start.host,
        torch=start.torch,
        script=from_here(start.script),
        started=start.time,
        clock=start.began / 1e9 - start.time,
        environ=start.environ,
        steps=tuple(steps),
        step_count=count,
        trailing=trailing,
        splits=tuple(splits_of(record)),
        raised=replace(raised[0], message=uncoloured(raised[0].message)) if raised else None,
        exit=_exit(record),
        last=record.last,
        record=record,
        children=tuple(children),
    )
    return replace(recording, passes=tuple(passes_of(record, children, recording.all_steps)))


def _exit(record: Record) -> Exit | None:
    """How the script ended; one that returned may be ended by something else after that."""
    ends = record.events(Exit)
    return next((end for end in ends if end.how != "returned"), ends[-1] if ends else None)
