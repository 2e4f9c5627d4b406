"""Groups of ranks: whether ranks train one model together, or one each; what a rank trains by itself; training steps
side by side; and the process groups that ranks make by new_group, which all have to make in one order.

What belongs together is told by what it is: training steps by the wrappers and parameters that their optimizer
updates and by how often it has, not by a running number. A rank that trains something by itself before the others
begin, or beside what they train together, would shift the numbers of all that follows.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from ddpdoctor.blame.causes import GroupsOutOfOrder
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.redact import show_value
from ddpdoctor.text import odd_ranks
from ddpdoctor.trace.data import TrainingStep
from ddpdoctor.trace.recording import Recording


def averaging_group(recording: Recording) -> tuple[int, ...] | None:
    """The ranks with which a rank averages gradients; None where that is every rank, or not known."""
    if recording.wrappers:
        wrapped = [wrapper.ranks for wrapper in recording.wrappers if wrapper.ranks is not None]
        return min(wrapped, key=len, default=None)
    by_hand = [call.group for call in recording.collectives if call.gradient_of]
    members = [group for group in by_hand if group is not None]
    return None if len(members) < len(by_hand) else max(members, key=len, default=None)


def whole_group(rank: int, recordings: Mapping[int, Recording]) -> tuple[int, ...]:
    """The ranks with which a rank averages gradients, in order, also those that were not recorded."""
    recording = recordings[rank]
    size = max((event.size or 0 for event in recording.group_events("init")), default=0)
    return averaging_group(recording) or tuple(sorted({*range(size), *recordings}))


def group_size(group: Mapping[int, Recording]) -> int:
    """How many ranks average gradients with each other, of which these were recorded."""
    return len(whole_group(next(iter(group)), group))


def dividing_groups(recording: Recording) -> list[GroupEvent]:
    """The groups of fewer ranks among which a sampler may divide: the ranks of all others share their batches.

    Those of a tensor group do; those of a dimension of the device mesh over which gradients are averaged do not.
    """
    made = [group for group in recording.group_events("new_group") if group.rank not in (None, -1)]
    averaging = {call.group for call in recording.collectives if call.gradient_of}
    averaging |= {wrapper.ranks for wrapper in recording.wrappers}
    of_data = [group for group in made if group.mesh and group.ranks and tuple(group.ranks) in averaging]
    return [it for it in made if all(set(data.ranks or ()) <= set(it.ranks or ()) for data in of_data)]


def train_one_model(recordings: Mapping[int, Recording]) -> bool:
    """Whether anything says that ranks mean to train one model, and not one each: a fold or a learning rate of its own.

    A wrapper says so, data divided by a sampler, and gradients or weights that were handed on. So do ranks that speak
    to each other between two steps of one optimizer, unless they began with unequal hyperparameters.
    """
    return any(
        it.wrappers or _divides(it) or any(call.weight_of or call.gradient_of for call in it.collectives)
        for it in recordings.values()
    ) or (any(map(_communicates_while_it_trains, recordings.values())) and not _began_unequal(recordings))


def _divides(recording: Recording) -> bool:
    """Whether a sampler gives it a part of the data."""
    samplers = [loader.sampler for loader in recording.loaders if loader.sampler]
    return any(sampler.distributed and (sampler.replicas or 2) > 1 for sampler in samplers)


def _began_unequal(recordings: Mapping[int, Recording]) -> bool:
    first = [recording.steps[0].optimizer_steps[0] for recording in recordings.values() if recording.steps]
    return len({repr(update.hyperparameters) for update in first}) > 1


def _communicates_while_it_trains(recording: Recording) -> bool:
    times: dict[int, list[float]] = {}
    for update in recording.updates:
        times.setdefault(update.optimizer, []).append(update.time)
    spans = [(min(time), max(time)) for time in times.values()]
    return any(first < call.time < last for call in recording.collectives for first, last in spans)


def without_own_training(recordings: Mapping[int, Recording]) -> dict[int, Recording]:
    """The recordings without the steps of optimizers that have nothing to do with what the ranks train together.

    Such an optimizer holds no parameter of a wrapper, neither its gradients nor its weights are exchanged, and either
    only some ranks have it, or no wrapped model trains between its first and its last step: a range test on a copy,
    a classifier on frozen features, the inner loop of meta-learning.
    """
    known = {rank: recording.identities for rank, recording in recordings.items() if recording.optimizers}
    shared = set.intersection(*(set(named.values()) for named in known.values())) if known else set()
    if not shared:
        return dict(recordings)
    return {
        rank: _without(it, {index for index, what in known.get(rank, {}).items() if what not in shared})
        for rank, it in recordings.items()
    }


def _without(recording: Recording, not_shared: set[int]) -> Recording:
    wrapped = {parameter.key for wrapper in recording.wrappers for parameter in wrapper.parameters}
    apart = {optimizer.index for optimizer in recording.optimizers if wrapped.isdisjoint(optimizer.keys)}
    apart &= not_shared | _outside_wrapped_training(recording)
    apart -= {it.optimizer for step in recording.steps if _exchanges(step) for it in step.optimizer_steps}
    if not apart:
        return recording
    left = tuple(it for it in recording.steps if {update.optimizer for update in it.optimizer_steps} - apart)
    return replace(recording, steps=left, step_count=recording.step_count - len(recording.steps) + len(left))


def _outside_wrapped_training(recording: Recording) -> set[int]:
    """Optimizers between whose first and last step no wrapped model was trained, where there is one."""
    if not recording.wrappers:
        return set()
    forwards = [forward.time for step in recording.steps for forward in step.forwards if forward.grad]
    begins = {it.optimizer: step.time for step in reversed(recording.steps) for it in step.optimizer_steps}
    # Those of steps that were not told in full, too.
    ends = {it.optimizer: it.time for it in (*recording.updates, *recording.events(OptimizerStep))}
    return {it for it, begin in begins.items() if not any(begin <= time <= ends[it] for time in forwards)}


def _exchanges(step: TrainingStep) -> bool:
    """Whether other ranks took part in it."""
    return any(backward.reduced for backward in step.backwards) or any(
        issued.gradient_of or issued.weight_of for issued in step.collectives
    )


_Row = TypeVar("_Row")
_MOST_KEPT = 4
"""Groups of recordings whose rows are kept."""


def _kept(
    rows_of: Callable[[Mapping[int, Recording]], Iterator[_Row]],
) -> Callable[[Mapping[int, Recording]], Iterator[_Row]]:
    """Keep the rows of recordings: dozens of checks ask for those of the same ones, which takes long of many ranks."""
    kept: list[tuple[dict[int, Recording], list[_Row]]] = []

    @functools.wraps(rows_of)
    def rows(recordings: Mapping[int, Recording]) -> Iterator[_Row]:
        for known, rows in kept:
            if known.keys() == recordings.keys() and all(known[rank] is recordings[rank] for rank in known):
                return iter(rows)
        kept.append((dict(recordings), list(rows_of(recordings))))
        del kept[:-_MOST_KEPT]
        return iter(kept[-1][1])

    return rows


@_kept
def training_steps(recordings: Mapping[int, Recording]) -> Iterator[tuple[int, dict[int, TrainingStep]]]:
    """Each training step that every rank has, by rank, in order; with its number on the first rank."""
    by_rank = {rank: recording.steps_by_identity for rank, recording in recordings.items()}
    common = set.intersection(*(set(steps) for steps in by_rank.values())) if by_rank else set()
    for key, first in next(iter(by_rank.values()), {}).items():
        if key in common:
            yield first.index, {rank: steps[key] for rank, steps in by_rank.items()}


def groups_made(recording: Recording) -> list[GroupEvent]:
    """The groups that a rank has called for, in order."""
    made = (group for group in recording.groups if group.action in ("making", "new_group"))
    return [group for group in made if not group.local]


def joined_with(event: GroupEvent, name: str) -> int | None:
    """The ``rank`` or ``world_size`` that a rank joined with: as an argument, or through the environment."""
    argument = event.arguments.get(name, -1)
    text = event.environ.get(name.upper(), "") if argument in (-1, None) else str(argument)
    return int(text) if text.isdigit() else None


def store_place(event: GroupEvent) -> str:
    """Where a rank connects to the store of its default group."""
    method = str(event.arguments.get("init_method") or "env://")
    if not method.startswith("env://"):
        return show_value("init_method", method)
    address, port = (event.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
    return f"{show_value('MASTER_ADDR', address)} port {show_value('MASTER_PORT', port)[1:-1]}"


def first_difference(orders: Mapping[int, list[GroupEvent]]) -> dict[int, GroupEvent | None] | None:
    """What each rank made at the first position at which they differ."""
    return {rank: head[0] if head else None for rank, head in _heads(orders).items()} or None


def out_of_order(row: Mapping[int, GroupEvent]) -> GroupsOutOfOrder:
    """Ranks that made different groups at one position."""
    members = {rank: event.ranks for rank, event in row.items()}
    odd = odd_ranks(members)
    others = tuple(rank for rank in members if rank not in odd)
    return GroupsOutOfOrder(members=members, culprits=odd, waiting=others, where=row[odd[0]].at)


def made_alone(orders: Mapping[int, list[GroupEvent]]) -> list[int]:
    """The few ranks that made one group more, and then those that the others made."""
    lists = {rank: [group.ranks for group in made] for rank, made in orders.items()}
    heads = {rank: [group.ranks for group in head] for rank, head in _heads(orders).items()}
    for group in {head[0] for head in heads.values() if head}:
        with_it = [rank for rank, head in heads.items() if head[:1] == [group]]
        others = [rank for rank in heads if rank not in with_it]
        goes_on = {head[1] for head in heads.values() if head[:1] == [group] and len(head) > 1}
        unknown = all(group not in lists[rank] for rank in others)
        common = goes_on & {head for rank in others for head in heads[rank][:1]}
        if unknown and 2 * len(with_it) <= len(heads) and common:
            return with_it
    return []


def _heads(orders: Mapping[int, list[GroupEvent]]) -> dict[int, list[GroupEvent]]:
    """What each rank made at the first position at which they differ, and next; nothing where they do not."""
    for position in range(max(map(len, orders.values()))):
        heads = {rank: made[position : position + 2] for rank, made in orders.items()}
        if len({tuple(group.ranks for group in head[:1]) for head in heads.values()}) > 1:
            return heads
    return {}


def restored_alike(group: Mapping[int, Recording]) -> bool:
    """Whether every rank restores the state of as many optimizers, schedulers and scalers as the others."""
    restored = (
        sorted(load.kind for load in recording.state_loads if load.kind != "module")
        for recording in group.values()
    )
    return len(set(map(tuple, restored))) <= 1
