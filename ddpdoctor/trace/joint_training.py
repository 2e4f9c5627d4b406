"""Whether ranks train one model together, or one each."""

from __future__ import annotations

from collections.abc import Mapping

from ddpdoctor.trace.recording import Recording


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
