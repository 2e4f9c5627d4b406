"""Whether replicas stayed together: which gradients no reducer averaged, and which digests differ between ranks."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from typing import Any

from ddpdoctor.check import NotMeasured
from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Expression, Program
from ddpdoctor.program.known import REDUCES, averages_weights
from ddpdoctor.recorder.events.training import Backward, Collective, Forward, Wrapper
from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.text import listing, plural
from ddpdoctor.trace import Trace
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.instances import grouped, of_model, on_each_rank
from ddpdoctor.trace.joint_training import averaging_group, train_one_model, training_steps
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.source_causes import is_of_weights

Group = Mapping[int, Recording]
"""The ranks that hold replicas of one model, and what was recorded of each."""
Digests = Mapping[str, str | None]
"""Checksums of tensors, by the name of the parameter."""

_SENDING = ("send", "isend", "batch_isend_irecv")
_OFTEN = 2
"""Times that a script mixes weights from which it is no accident."""
_LARGEST_STATISTIC = 8
"""Numbers that a rank may send to another and that are no weights: losses, counts, a state."""


@dataclass(frozen=True)
class Update:
    """One optimizer's step on every rank of a group, with the training step around it."""

    index: int
    """Of the training step."""
    optimizer: int
    taken: Mapping[int, OptimizerStep]
    steps: Mapping[int, TrainingStep]

    @property
    def before(self) -> dict[int, Digests | None]:
        """The digests of the weights that each rank had before."""
        return {rank: step.before for rank, step in self.taken.items()}

    @property
    def after(self) -> dict[int, Digests | None]:
        """The digests of the weights that each rank had after it."""
        return {rank: step.after for rank, step in self.taken.items()}

    @property
    def differing_gradients(self) -> tuple[str, ...]:
        """The parameters whose gradients differ between ranks."""
        return differing({rank: step.gradients for rank, step in self.taken.items()})

    @property
    def where(self) -> Where | None:
        """The line of the optimizer's step on the first rank."""
        return next(iter(self.taken.values())).at


class MissedReduction(Enum):
    """Why a backward left gradients that no all-reduce averaged."""

    BYPASSED = "the wrapped module was called around its wrapper"
    NO_SYNC = "its forward ran while synchronisation was off"
    SECOND_BACKWARD = "the reducer had finished in an earlier backward of the step"
    HOOKS_LOST = "its forward went through the wrapper, and the reducer's hooks did not fire"


@dataclass(frozen=True)
class Unreduced:
    """A backward after which no other averaged the gradients before the update."""

    cause: MissedReduction
    backward: Backward
    forward: Forward | None = None
    """The forward that it belongs to, where one was seen."""

    @property
    def where(self) -> Where | None:
        """The line to look at: the call around the wrapper, and otherwise the backward."""
        around = self.forward if self.cause is MissedReduction.BYPASSED else None
        return (around or self.backward).at


@dataclass(frozen=True)
class Unaveraged:
    """Gradients of a wrapper that went into an update unaveraged."""

    update: Update
    wrapper: Wrapper
    by_rank: Mapping[int, Unreduced]
    """The ranks on which no all-reduce came, and why."""
    differing: tuple[str, ...]
    """The parameters whose gradients differ; none where ranks read the same data."""
    compared: int
    """How many gradients were compared."""

    @property
    def first(self) -> Unreduced:
        """What is so on the first rank."""
        return next(iter(self.by_rank.values()))


def replicas(trace: Trace) -> list[dict[int, Recording]]:
    """The recordings of training, divided into groups of ranks that hold one model.

    Where gradients are averaged in process groups of fewer ranks, those divide the ranks.

    Raises:
        NotMeasured: no training was recorded, or no rank has another to compare it with.
    """
    return trace.once(_replicas)


def _replicas(trace: Trace) -> list[dict[int, Recording]]:
    recordings = trace.training_of_several()
    # A group of all ranks has no key of its own: to hash it for each rank takes the square of their number.
    everybody, groups = tuple(recordings), defaultdict[tuple[int, ...] | None, dict[int, Recording]](dict)
    for rank, recording in recordings.items():
        members = averaging_group(recording) or everybody
        groups[None if members == everybody else members][rank] = recording
    several = [group for group in groups.values() if len(group) > 1]
    if not several:
        raise NotMeasured("each process group has one rank, which has no other to differ from")
    together = [group for group in several if train_one_model(group)]
    if not together:
        raise NotMeasured("each rank trains a model of its own: nothing says that they are one")
    return together


def updates(group: Group) -> Iterator[Update]:
    """The steps of every optimizer under which replicas have to stay equal.

    Left out are steps inside a Join, and optimizers whose ranks differ by design.
    """
    optimizers = on_each_rank(group, lambda recording: recording.optimizers)
    unequal = {(rank, it.index) for rank, it in optimizers if it.sharded or it.averages}
    known = {rank: recording.identities for rank, recording in group.items()}
    for index, row in training_steps(group):
        by_rank = {
            rank: {known[rank].get(taken.optimizer, ()): taken for taken in step.optimizer_steps}
            for rank, step in row.items()
            if not step.joined
        }
        first = next(iter(by_rank.values()), {})
        for optimizer, update in sorted(first.items(), key=lambda pair: pair[1].optimizer):
            taken = {rank: there[optimizer] for rank, there in by_rank.items() if optimizer in there}
            of_all = len(taken) == len(group)
            if of_all and unequal.isdisjoint((rank, step.optimizer) for rank, step in taken.items()):
                yield Update(index, update.optimizer, taken, row)


def differing(digests: Mapping[int, Digests | None]) -> tuple[str, ...]:
    """The keys that every rank has and that have unequal digests; none where any rank took none."""
    rows = [row for row in digests.values() if row is not None]
    if len(rows) < len(digests) or not rows:
        return ()
    values = {key: {row.get(key) for row in rows} for key in rows[0]}
    return tuple(key for key, value in values.items() if len(value) > 1 and None not in value)


def unreduced(step: TrainingStep, wrapper: int) -> Unreduced | None:
    """The first backward whose gradients of a wrapper no later one averaged; None where the last one did."""
    first: Unreduced | None = None
    pending: list[Forward] = []
    finished = False
    events: list[Forward | Backward] = [*step.forwards, *step.backwards]
    for event in sorted(events, key=lambda event: event.time):
        if isinstance(event, Forward):
            if event.wrapper == wrapper and event.grad:
                pending.append(event)
            continue
        if wrapper in event.reduced:
            first, finished = None, True
        elif first is None:
            first = _explain(event, pending, finished, step, wrapper)
        pending = []
    return first


def _explain(
    backward: Backward, pending: list[Forward], finished: bool, step: TrainingStep, wrapper: int
) -> Unreduced:
    through = [forward for forward in pending if not forward.around]
    if any(forward.synced for forward in through):
        return Unreduced(MissedReduction.HOOKS_LOST, backward, through[-1])
    if through:
        return Unreduced(MissedReduction.NO_SYNC, backward, through[-1])
    if pending:
        return Unreduced(MissedReduction.BYPASSED, backward, pending[0])
    if finished:
        return Unreduced(MissedReduction.SECOND_BACKWARD, backward)
    used = any(forward.wrapper == wrapper and not forward.around for forward in step.forwards)
    return Unreduced(MissedReduction.NO_SYNC if used else MissedReduction.BYPASSED, backward)


def unaveraged_updates(trace: Trace, cause: MissedReduction) -> list[list[Unaveraged]]:
    """Updates of a wrapper's parameters by gradients that were not averaged, for one cause; by wrapper and line.

    Silent where the script averages gradients or weights itself.

    Raises:
        NotMeasured: see :func:`replicas`; or no module was wrapped.
    """
    unaveraged = [each for each in trace.once(_all_unaveraged) if each.first.cause is cause]
    return grouped(unaveraged, lambda each: (each.wrapper.index, each.first.where))


def _all_unaveraged(trace: Trace) -> list[Unaveraged]:
    groups = replicas(trace)
    if not any(recording.wrappers for group in groups for recording in group.values()):
        raise NotMeasured("nothing was wrapped in DistributedDataParallel")
    return [
        each
        for group in groups
        if not weights_are_made_equal(group)
        for update in updates(group)
        for each in _unaveraged(group, update)
    ]


def finding_fields(unaveraged: Sequence[Unaveraged], first: Unaveraged) -> dict[str, Any]:
    """The fields of a finding that rests on such updates of one wrapper and line, of which one is shown."""
    count = plural(len({each.update.index for each in unaveraged}), "training step")
    shown = f"{count} with such gradients, the first: step {first.update.index}"
    differ = (Evidence(f"gradients that differ: {listing(first.differing)}"),) if first.differing else ()
    return {
        "where": first.first.where,
        "evidence": (Evidence(shown, tuple(first.by_rank)), *differ),
        "about": of_model(first.wrapper),
    }


def _unaveraged(group: Group, update: Update) -> Iterator[Unaveraged]:
    unequal = update.differing_gradients
    if any(step.gradients is None for step in update.taken.values()):
        return
    for wrapper in next(iter(group.values())).wrappers:
        digests = next(iter(update.taken.values())).gradients or {}
        trained = {it.key for it in wrapper.parameters if digests.get(it.key) is not None}
        missed = {rank: unreduced(step, wrapper.index) for rank, step in update.steps.items()}
        by_rank = {rank: backward for rank, backward in missed.items() if backward}
        differing = tuple(key for key in unequal if key in trained)
        unaveraged = Unaveraged(update, wrapper, by_rank, differing, len(trained))
        if trained and by_rank and _is_certain(unaveraged):
            yield unaveraged


def _is_certain(unaveraged: Unaveraged) -> bool:
    if unaveraged.differing:
        return True
    # Equal data hides it from the gradients. Then only a forward that was seen, and no collective of the script's
    # own that could have averaged anything, leave no doubt.
    issued = [collective for step in unaveraged.update.steps.values() for collective in step.collectives]
    by_hand = any(collective.gradient_of or elements(collective) > 2 for collective in issued)
    certain = all(
        backward.cause in (MissedReduction.BYPASSED, MissedReduction.NO_SYNC) and backward.forward
        for backward in unaveraged.by_rank.values()
    )
    return certain and not by_hand and not unaveraged.wrapper.hook


def elements(collective: Collective) -> int:
    """How many numbers it carries; none where its tensor was not seen."""
    return 0 if collective.shape is None else math.prod(collective.shape)


def carries_weights(collective: Collective) -> bool:
    """Whether it carries weights, or may: more numbers than a loss, a count or a state."""
    return bool(collective.weight_of) or elements(collective) > _LARGEST_STATISTIC


def weights_are_made_equal(group: Group) -> bool:
    """Whether something other than DDP makes weights equal again after they differed, or is known to do so."""
    recordings = group.values()
    if any(map(_averages_weights, recordings)) or all(map(_averages_with_some_ranks, recordings)):
        return True
    if all(map(_averages_by_hand, recordings)) or all(map(_mixes_weights, recordings)):
        return True
    first: dict[int, Update] = {}
    for update in updates(group):
        if update.optimizer not in first and differing(update.after):
            first[update.optimizer] = update
    return any(_equal_again(group, update) for update in first.values())


def _equal_again(group: Group, update: Update) -> bool:
    """Whether weights that differed after an update are the same on all ranks before a later one of each rank.

    Ranks need not take as many steps in between, nor with the same optimizer where they hand on something else.
    """
    keys = differing(update.after)
    any_optimizer = all(map(_hands_on_weights, group.values()))
    met = [
        {
            tuple(taken.before[key] for key in keys)
            for taken in recording.updates
            if taken.before and taken.before.keys() >= set(keys) and taken.time > update.taken[rank].time
            if any_optimizer or taken.optimizer == update.taken[rank].optimizer
        }
        for rank, recording in group.items()
    ]
    return bool(set.intersection(*met))


def _hands_on_weights(recording: Recording) -> bool:
    """Whether the script, and no wrapper, may send weights: as tensors, or inside objects."""
    calls = recording.collectives
    return not recording.wrappers and any(carries_weights(it) or "object" in it.operation for it in calls)


def _averages_weights(recording: Recording) -> bool:
    """Whether its optimizer averages weights, or a hook leaves that to an averager: post_localSGD_hook."""
    if any(optimizer.averages for optimizer in recording.optimizers):
        return True
    # At intervals, which may be longer than what was recorded.
    return any("local" in (wrapper.hook or "").lower() for wrapper in recording.wrappers) and (
        any(call.weight_of for call in recording.collectives) or _may_average(Program.of(recording.script))
    )


@cache
def _may_average(program: Program) -> bool:
    """Whether a script calls one of torch's averagers, or a collective on weights; or cannot be read."""
    return not program.files or any(map(_averages, program.every_call()))


def _averages(call: Expression) -> bool:
    if any(map(averages_weights, call.called)):
        return True
    tensor = next((call.argument(*REDUCES[name]) for name in call.called if name in REDUCES), None)
    return tensor is not None and is_of_weights(tensor)


def _averages_by_hand(recording: Recording) -> bool:
    """Whether it all-reduces weights that it has trained: after as many updates of its own as it likes, with an
    optimizer that may be a new one each time."""
    begun = min((step.time for step in recording.steps), default=math.inf)
    calls = recording.collectives
    return any(call.weight_of and call.operation == "all_reduce" and call.time > begun for call in calls)


def _mixes_weights(recording: Recording) -> bool:
    """Whether the script changes weights between updates, each time after a collective that carries more than
    statistics: it averages a part of them, or mixes them with those of others, which need not make them equal."""
    mixed = 0
    for step, following in pairwise(recording.steps):
        update, then = step.optimizer_steps[-1], following.optimizer_steps[0]
        if update.optimizer != then.optimizer or not update.after or not then.before:
            continue
        if all(then.before.get(key) in (None, digest) for key, digest in update.after.items()):
            continue
        until = min((forward.time for forward in following.forwards), default=then.time)
        between = (call for call in recording.collectives if update.time < call.time < until)
        if not any("object" in call.operation or carries_weights(call) for call in between):
            return False
        mixed += 1
    return mixed >= _OFTEN


def _averages_with_some_ranks(recording: Recording) -> bool:
    """Whether it sends weights to one rank, or averages them with some, as gossip does: they may never be equal."""
    return not recording.wrappers and any(
        (call.operation in _SENDING and carries_weights(call)) or (call.weight_of and call.group)
        for call in recording.collectives
    )
