"""The same moment on several ranks: training steps side by side.

What belongs together is told by what it is: training steps by the wrappers and parameters that their optimizer
updates and by how often it has, not by a running number. A rank that trains something by itself before the others
begin, or beside what they train together, would shift the numbers of all that follows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from ddpdoctor.recorder.events.updates import OptimizerStep
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.training import TrainingStep

_Row = TypeVar("_Row")
_MOST_KEPT = 4
"""Groups of recordings whose rows are kept."""


def _kept(
    rows_of: Callable[[Mapping[int, Recording]], Iterator[_Row]],
) -> Callable[[Mapping[int, Recording]], Iterator[_Row]]:
    """Keep the rows of recordings: dozens of checks ask for those of the same ones, which takes long of many ranks."""
    kept: list[tuple[dict[int, Recording], list[_Row]]] = []

    @functools.wraps(rows_of)
    def rows(recordings: Mapping[int, Recording]) -> Iterator[_Row]:
        for known, rows in kept:
            if known.keys() == recordings.keys() and all(known[rank] is recordings[rank] for rank in known):
                return iter(rows)
        kept.append((dict(recordings), list(rows_of(recordings))))
        del kept[:-_MOST_KEPT]
        return iter(kept[-1][1])

    return rows


@_kept
def training_steps(recordings: Mapping[int, Recording]) -> Iterator[tuple[int, dict[int, TrainingStep]]]:
    """Each training step that every rank has, by rank, in order; with its number on the first rank."""
    by_rank = {rank: recording.steps_by_identity for rank, recording in recordings.items()}
    common = set.intersection(*(set(steps) for steps in by_rank.values())) if by_rank else set()
    for key, first in next(iter(by_rank.values()), {}).items():
        if key in common:
            yield first.index, {rank: steps[key] for rank, steps in by_rank.items()}


@_kept
def optimizer_steps(
    recordings: Mapping[int, Recording],
) -> Iterator[tuple[int, int, dict[int, OptimizerStep], dict[int, TrainingStep]]]:
    """Each step of each optimizer that every rank has: the training step's index, the optimizer's, and by rank.

    The numbers are those of the first rank.
    """
    known = {rank: recording.identities for rank, recording in recordings.items()}
    for index, row in training_steps(recordings):
        by_rank = {
            rank: {known[rank].get(taken.optimizer, ()): taken for taken in step.optimizer_steps}
            for rank, step in row.items()
        }
        first = next(iter(by_rank.values()))
        for optimizer, taken in sorted(first.items(), key=lambda pair: pair[1].optimizer):
            if all(optimizer in taken_there for taken_there in by_rank.values()):
                yield index, taken.optimizer, {r: there[optimizer] for r, there in by_rank.items()}, row
