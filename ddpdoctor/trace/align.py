"""The same training step on several ranks, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep


def training_steps(recordings: Mapping[int, Recording]) -> Iterator[tuple[int, dict[int, TrainingStep]]]:
    """Each training step that every rank has, by rank, in order."""
    by_rank = {rank: {step.index: step for step in recording.steps} for rank, recording in recordings.items()}
    common = set.intersection(*(set(steps) for steps in by_rank.values())) if by_rank else set()
    for index in sorted(common):
        yield index, {rank: steps[index] for rank, steps in by_rank.items()}
