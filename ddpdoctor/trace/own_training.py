"""What a rank trains by itself, before or beside the model that the ranks train together: a teacher, a probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpdoctor.recorder.events.training import Optimizer, OptimizerStep
from ddpdoctor.trace.align import identities
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep


def without_own_training(recordings: Mapping[int, Recording]) -> dict[int, Recording]:
    """The recordings without what optimizers do that only some ranks have, or that were done with before the wrap.

    Such an optimizer holds no parameter of a wrapper, and neither its gradients nor its weights are exchanged.
    """
    known = {rank: identities(recording) for rank, recording in recordings.items() if recording.optimizers}
    shared = set.intersection(*(set(own.values()) for own in known.values())) if known else set()
    return {
        rank: _without(
            recording, {index for index, what in known.get(rank, {}).items() if what not in shared}
        )
        if shared
        else recording
        for rank, recording in recordings.items()
    }


def _without(recording: Recording, not_shared: set[int]) -> Recording:
    own = {
        optimizer.index
        for optimizer in recording.optimizers
        if _is_unwrapped(recording, optimizer)
        and (optimizer.index in not_shared or _ends_before_the_wrap(recording, optimizer))
    }
    own -= {taken.optimizer for step in recording.steps if _exchanges(step) for taken in step.optimizer_steps}
    if not own:
        return recording
    steps = tuple(step for step in recording.steps if {t.optimizer for t in step.optimizer_steps} - own)
    return replace(
        recording,
        steps=steps,
        step_count=recording.step_count - len(recording.steps) + len(steps),
    )


def _is_unwrapped(recording: Recording, optimizer: Optimizer) -> bool:
    wrapped = {parameter.key for wrapper in recording.wrappers for parameter in wrapper.parameters}
    return wrapped.isdisjoint(optimizer.keys)


def _ends_before_the_wrap(recording: Recording, optimizer: Optimizer) -> bool:
    last = max(
        (one.time for one in recording.events(OptimizerStep) if one.optimizer == optimizer.index), default=0.0
    )
    return any(wrapper.time > last for wrapper in recording.wrappers[:1])


def _exchanges(step: TrainingStep) -> bool:
    """Whether other ranks took part in it."""
    return any(backward.reduced for backward in step.backwards) or any(
        issued.gradient_of or issued.weight_of for issued in step.collectives
    )
