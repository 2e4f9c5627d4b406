"""Who keeps the others waiting, from the stacks and the progress of ranks that stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpdoctor.blame.frames import Frame
from ddpdoctor.model import Confidence, Evidence, Level, Where


@dataclass(frozen=True)
class Verdict:
    """Why a job stands still: one cause, in the words of the check whose disease it is."""

    code: str
    """Of that check."""
    headline: str
    why: str
    fix: str
    culprits: tuple[int, ...] = ()
    """The ranks to look at; empty where it is not one of them."""
    waiting: tuple[int, ...] = ()
    """The ranks that wait for them."""
    where: Where | None = None
    """The line of the first culprit's script."""
    evidence: tuple[Evidence, ...] = ()
    confidence: Confidence = Confidence.CERTAIN
    level: Level = Level.FAIL


_WAITING_IN = (
    "torch/distributed/distributed_c10d.py",
    "torch/distributed/c10d_logger.py",
    "torch/nn/parallel/distributed.py",
    "torch/autograd/graph.py",
    "torch/distributed/rendezvous.py",
)
"""Files whose innermost frame means that a rank waits for its peers. Backward ends in ``autograd/graph.py``: the
reducer waits for the other ranks' gradients below it, in C++."""


def waits_for_peers(stack: Sequence[Frame]) -> bool:
    """Whether a rank's innermost frame is a collective."""
    return bool(stack) and stack[-1].file.replace("\\", "/").endswith(_WAITING_IN)


def culprits(stacks: Mapping[int, Sequence[Frame]], progress: Mapping[int, int]) -> tuple[int, ...]:
    """The ranks that the others wait for; none where all wait alike, which points at what is between them.

    Args:
        stacks: each stopped rank's stack, outermost frame first; empty where it showed none, as a process that
            SIGSTOP halted does.
        progress: how many steps each rank took; the rank behind is the one that never came.
    """
    elsewhere = tuple(rank for rank, stack in sorted(stacks.items()) if stack and not waits_for_peers(stack))
    silent = tuple(rank for rank, stack in sorted(stacks.items()) if not stack)
    for suspects in (elsewhere, silent):
        if suspects and len(suspects) < len(stacks):
            return suspects
    least = min(progress.values(), default=0)
    behind = tuple(rank for rank, steps in sorted(progress.items()) if steps == least)
    return behind if len(behind) < len(progress) else ()
