"""Whether ranks train one model together, or one each; what a rank trains by itself; and training steps side by side.

What belongs together is told by what it is: training steps by the wrappers and parameters that their optimizer
updates and by how often it has, not by a running number. A rank that trains something by itself before the others
begin, or beside what they train together, would shift the numbers of all that follows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep


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
    return [
        group for group in made if all(set(data.ranks or ()) <= set(group.ranks or ()) for data in of_data)
    ]


def train_one_model(recordings: Mapping[int, Recording]) -> bool:
    """Whether anything says that ranks mean to train one model, and not one each: a fold or a learning rate of its own.

    A wrapper says so, data divided by a sampler, and gradients or weights that were handed on. So do ranks that speak
    to each other between two steps of one optimizer, unless they began with unequal hyperparameters.
    """
    return any(
        recording.wrappers or _divides(recording) or _communicates_gradients_or_weights(recording)
        for recording in recordings.values()
    ) or (any(map(_communicates_while_it_trains, recordings.values())) and not _began_unequal(recordings))


def _divides(recording: Recording) -> bool:
    """Whether a sampler gives it a part of the data."""
    samplers = [loader.sampler for loader in recording.loaders if loader.sampler]
    return any(sampler.distributed and (sampler.replicas or 2) > 1 for sampler in samplers)


def _communicates_gradients_or_weights(recording: Recording) -> bool:
    """Whether a collective carries its gradients or weights."""
    return any(call.weight_of or call.gradient_of for call in recording.collectives)


def _began_unequal(recordings: Mapping[int, Recording]) -> bool:
    first = [recording.steps[0].optimizer_steps[0] for recording in recordings.values() if recording.steps]
    return len({repr(update.hyperparameters) for update in first}) > 1


def _communicates_while_it_trains(recording: Recording) -> bool:
    times: dict[int, list[float]] = {}
    for step in recording.steps:
        for update in step.optimizer_steps:
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
    return {
        rank: _without(
            recording, {index for index, what in known.get(rank, {}).items() if what not in shared}
        )
        if shared
        else recording
        for rank, recording in recordings.items()
    }


def _without(recording: Recording, not_shared: set[int]) -> Recording:
    wrapped = {parameter.key for wrapper in recording.wrappers for parameter in wrapper.parameters}
    apart = {optimizer.index for optimizer in recording.optimizers if wrapped.isdisjoint(optimizer.keys)}
    apart &= not_shared | _outside_wrapped_training(recording)
    apart -= {
        update.optimizer for step in recording.steps if _exchanges(step) for update in step.optimizer_steps
    }
    if not apart:
        return recording
    steps = tuple(
        step for step in recording.steps if {update.optimizer for update in step.optimizer_steps} - apart
    )
    return replace(
        recording,
        steps=steps,
        step_count=recording.step_count - len(recording.steps) + len(steps),
    )


def _outside_wrapped_training(recording: Recording) -> set[int]:
    """Optimizers between whose first and last step no wrapped model was trained, where there is one."""
    if not recording.wrappers:
        return set()
    forwards = [forward.time for step in recording.steps for forward in step.forwards if forward.grad]
    begins: dict[int, float] = {}
    ends: dict[int, float] = {}
    for step in recording.steps:
        for update in step.optimizer_steps:
            begins.setdefault(update.optimizer, step.time)
            ends[update.optimizer] = update.time
    # Those of steps that were not told in full, too.
    ends |= {update.optimizer: update.time for update in recording.events(OptimizerStep)}
    return {
        optimizer
        for optimizer, begin in begins.items()
        if not any(begin <= time <= ends[optimizer] for time in forwards)
    }


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
