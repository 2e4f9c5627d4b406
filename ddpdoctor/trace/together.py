"""Whether ranks train one model together, or one each."""

from __future__ import annotations

from collections.abc import Mapping

from ddpdoctor.trace.recording import Recording


def train_one_model(recordings: Mapping[int, Recording]) -> bool:
    """Whether anything says that ranks mean to train one model, and not one each: a fold or a learning rate of its own.

    A wrapper says so, data divided by a sampler, and gradients or weights that were handed on. So do ranks that speak
    to each other between two steps of one optimizer, unless they began with unequal hyperparameters.
    """
    values = recordings.values()
    return (
        any(value.wrappers for value in values)
        or any(_divides(value) for value in values)
        or any(issued.weight_of or issued.gradient_of for value in values for issued in value.collectives)
        or (any(_speaks_while_it_trains(value) for value in values) and not _began_unequal(recordings))
    )


def _divides(recording: Recording) -> bool:
    """Whether a sampler gives it a part of the data."""
    samplers = [loader.sampler for loader in recording.loaders if loader.sampler]
    return any(sampler.distributed and (sampler.replicas or 2) > 1 for sampler in samplers)


def _began_unequal(recordings: Mapping[int, Recording]) -> bool:
    first = [recording.steps[0].optimizer_steps[0] for recording in recordings.values() if recording.steps]
    return len({repr(one.hyperparameters) for one in first}) > 1


def _speaks_while_it_trains(recording: Recording) -> bool:
    times: dict[int, list[float]] = {}
    for step in recording.steps:
        for one in step.optimizer_steps:
            times.setdefault(one.optimizer, []).append(one.time)
    spans = [(min(time), max(time)) for time in times.values()]
    return any(first < issued.time < last for issued in recording.collectives for first, last in spans)
