"""Parameters of which each rank holds a part of its own by design: experts, classes that ranks divide."""

from __future__ import annotations

from ddpdoctor.trace.instances import on_each_rank
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.sync import Group, elements, last_backward
from ddpdoctor.trace.training import TrainingStep

_SUMMING = ("all_reduce", "reduce_scatter", "reduce_scatter_tensor")
_LARGEST_STATISTIC = 8
"""Numbers that a script may sum over ranks for a loss or a log; activations are more."""


def sharded_keys(group: Group) -> frozenset[str]:
    """Keys of what no wrapper knows, where ranks exchange activations on the way to the loss; else none."""
    if not all(map(_exchanges_activations, group.values())):
        return frozenset()
    optimizers = on_each_rank(group, lambda recording: recording.optimizers)
    return frozenset(key for _, optimizer in optimizers for key in optimizer.outside)


def _exchanges_activations(recording: Recording) -> bool:
    return any(_exchanges(step, wrapped=bool(recording.wrappers)) for step in recording.steps)


def _exchanges(step: TrainingStep, *, wrapped: bool) -> bool:
    last = last_backward(step)
    return any(
        collective.operation.startswith("all_to_all")
        # Where nothing is wrapped, what is summed before a backward may be gradients of an earlier one.
        or (
            wrapped
            and collective.operation in _SUMMING
            and elements(collective) > _LARGEST_STATISTIC
            and collective.gradient_of is None
            and collective.weight_of is None
        )
        for collective in step.collectives
        if collective.time < last
    )
