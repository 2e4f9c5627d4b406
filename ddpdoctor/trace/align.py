"""The same moment on several ranks: training steps, passes, loaders and collectives side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddpdoctor.recorder.events.training import OptimizerStep
from ddpdoctor.trace.data import Pass
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep


def training_steps(recordings: Mapping[int, Recording]) -> Iterator[tuple[int, dict[int, TrainingStep]]]:
    """Each training step that every rank has, by rank, in order."""
    by_rank = {rank: {step.index: step for step in recording.steps} for rank, recording in recordings.items()}
    common = set.intersection(*(set(steps) for steps in by_rank.values())) if by_rank else set()
    for index in sorted(common):
        yield index, {rank: steps[index] for rank, steps in by_rank.items()}


def optimizer_steps(
    recordings: Mapping[int, Recording],
) -> Iterator[tuple[int, int, dict[int, OptimizerStep]]]:
    """Each step of each optimizer that every rank has: the training step's index, the optimizer's, and by rank."""
    for index, row in training_steps(recordings):
        by_rank = {
            rank: {taken.optimizer: taken for taken in step.optimizer_steps} for rank, step in row.items()
        }
        for optimizer in sorted(set.intersection(*(set(taken) for taken in by_rank.values()))):
            yield index, optimizer, {rank: taken[optimizer] for rank, taken in by_rank.items()}


def passes(recordings: Mapping[int, Recording]) -> Iterator[tuple[int, int, dict[int, Pass]]]:
    """Each pass that every rank made: the loader's index, the pass's number, and the pass by rank."""
    by_rank = {rank: {(p.loader, p.number): p for p in one.passes} for rank, one in recordings.items()}
    common = set.intersection(*(set(found) for found in by_rank.values())) if by_rank else set()
    for loader, number in sorted(common):
        yield loader, number, {rank: found[loader, number] for rank, found in by_rank.items()}
