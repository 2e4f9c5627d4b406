"""Where the time of training steps goes, by rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import median

from ddpdoctor.check import NotMeasured
from ddpdoctor.trace import Trace
from ddpdoctor.trace.align import training_steps
from ddpdoctor.trace.training import TrainingStep

WARM_UP = 2
"""Training steps at the beginning of a run that say nothing of the pace."""
FEWEST_STEPS = 5
"""Steps from which a median means something."""
WORK = ("data", "forward", "backward", "step", "collective", "other")
"""Phases of a rank's own work; its waits for others, and for a CPU, are phases of their own."""
Steps = Mapping[int, list[TrainingStep]]


def paced_steps(trace: Trace) -> dict[int, list[TrainingStep]]:
    """The training steps of each rank that show its pace: the same on every rank, none that began a pass or set up a
    wrapper, whose constructor waits for the other ranks.

    A rank that makes more micro-batches of a step is given more to do by the script: it is not slow.

    Raises:
        NotMeasured: there are too few, or the devices were simulated.
    """
    if trace.rehearsal:
        raise NotMeasured("a rehearsal shows nothing of speed")
    recordings = trace.training()
    timed = {
        rank: replace(
            recording, steps=tuple(step for step in recording.steps[WARM_UP:] if step.phases.get("total"))
        )
        for rank, recording in recordings.items()
    }
    begun = {
        rank: {
            *(pass_.begin for pass_ in recording.training_passes),
            *(wrapper.time for wrapper in recording.wrappers),
        }
        for rank, recording in recordings.items()
    }
    common = [
        row
        for _, row in training_steps(timed)
        if not any(_begins(step, begun[rank]) for rank, step in row.items())
        and len({len(step.backwards) for step in row.values()}) == 1
    ]
    if len(common) < FEWEST_STEPS:
        raise NotMeasured("too few training steps were timed")
    return {rank: [row[rank] for row in common] for rank in timed}


def _begins(step: TrainingStep, begun: set[float]) -> bool:
    """Whether one of these began in this step: it waited for workers to start, or for all ranks to wrap."""
    return any(step.time - step.phases["total"] <= time <= step.time for time in begun)


def own_time(step: TrainingStep, phase: str) -> float:
    """Seconds of a phase; ``other`` is what is in no phase: the script's own code between them."""
    return _seconds_of(step.phases, phase)


def _seconds_of(phases: Mapping[str, float], phase: str) -> float:
    if phase != "other":
        return phases.get(phase, 0.0)
    known = sum(seconds for name, seconds in phases.items() if name != "total")
    return max(0.0, phases["total"] - known)


def work(phases: Mapping[str, float]) -> dict[str, float]:
    """Seconds of the rank's own work in a step, by phase."""
    return {phase: _seconds_of(phases, phase) for phase in WORK}


def typical(steps: list[TrainingStep], phase: str) -> float:
    """The median of a phase, in seconds; ``total`` for whole steps."""
    return median(own_time(step, phase) for step in steps)
