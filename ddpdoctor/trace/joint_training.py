"""Whether ranks train one model together, or one each."""

from __future__ import annotations

from collections.abc import Mapping

from ddpdoctor.recorder.events.process import GroupEvent
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
