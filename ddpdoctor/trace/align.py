"""The same moment on several ranks: training steps side by side.

What belongs together is told by what it is: training steps by the wrappers and parameters that their optimizer
updates and by how often it has, not by a running number. A rank that trains something by itself before the others
begin, or beside what they train together, would shift the numbers of all that follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from ddpdoctor.recorder.events.training import OptimizerStep
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep

Identity: TypeAlias = tuple[object, ...]
"""Of an optimizer: the same on every rank that has it."""


def training_steps(recordings: Mapping[int, Recording]) -> Iterator[tuple[int, dict[int, TrainingStep]]]:
    """Each training step that every rank has, by rank, in order; with its number on the first rank."""
    by_rank = {rank: _steps(recording) for rank, recording in recordings.items()}
    common = set.intersection(*(set(steps) for steps in by_rank.values())) if by_rank else set()
    for key, first in next(iter(by_rank.values()), {}).items():
        if key in common:
            yield first.index, {rank: steps[key] for rank, steps in by_rank.items()}


def optimizer_steps(
    recordings: Mapping[int, Recording],
) -> Iterator[tuple[int, int, dict[int, OptimizerStep], dict[int, TrainingStep]]]:
    """Each step of each optimizer that every rank has: the training step's index, the optimizer's, and by rank.

    The numbers are those of the first rank.
    """
    known = {rank: identities(recording) for rank, recording in recordings.items()}
    for index, row in training_steps(recordings):
        by_rank = {
            rank: {known[rank].get(taken.optimizer, ()): taken for taken in step.optimizer_steps}
            for rank, step in row.items()
        }
        first = next(iter(by_rank.values()))
        for optimizer, taken in sorted(first.items(), key=lambda pair: pair[1].optimizer):
            if all(optimizer in taken_there for taken_there in by_rank.values()):
                yield index, taken.optimizer, {r: there[optimizer] for r, there in by_rank.items()}, row


def identities(recording: Recording) -> dict[int, Identity]:
    """What each optimizer of a rank updates: wrapped models, or parameters by their names."""
    held = {parameter.key: one.index for one in recording.wrappers for parameter in one.parameters}
    before: Counter[Identity] = Counter()
    found: dict[int, Identity] = {}
    for optimizer in recording.optimizers:
        wrappers = frozenset(held[key] for key in optimizer.keys if key in held)
        what: Identity = ("wrappers", wrappers) if wrappers else ("parameters", *optimizer.keys)
        found[optimizer.index] = (*what, before[what])
        before[what] += 1
    return found


def _steps(recording: Recording) -> dict[Identity, TrainingStep]:
    known = identities(recording)
    steps: dict[Identity, TrainingStep] = {}
    for step in recording.steps:
        first = step.optimizer_steps[0] if step.optimizer_steps else OptimizerStep(-1, step.time, None)
        number = step.index if first.number is None else first.number
        steps[known.get(first.optimizer, (first.optimizer,)), first.wrappers, number] = step
    return steps
