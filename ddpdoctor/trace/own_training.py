"""What a rank trains by itself, before or beside the model that the ranks train together: a teacher, a probe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep


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
