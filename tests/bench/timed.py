"""What ranks of a benchmark write."""

from collections.abc import Sequence
from typing import Any

STEP = (0.001, 0.008, 0.010, 0.001)
"""Seconds of the phases of one rank alone: 20 ms."""


def steps(phases: Sequence[float] = STEP, times: int = 5) -> list[list[float]]:
    """Steps that all take as long."""
    return [list(phases)] * times


def rank(*, exposed: float = 0.0, slower: float = 1.0, apart: bool = True) -> dict[str, Any]:
    """One rank's steps.

    Args:
        exposed: seconds that averaging adds to backward.
        slower: how many times as long as alone it computes.
        apart: whether the steps without averaging were timed too.
    """
    data, forward, backward, optimizer = (value * slower for value in STEP)
    timed = {
        "synced": steps((data, forward, backward + exposed, optimizer)),
        "unsynced": steps((data, forward, backward, optimizer)) if apart else [],
    }
    return {"parameters": 1000, "gradient_bytes": 4000, "steps": timed}


def alone() -> list[dict[str, Any]]:
    """One process."""
    return [rank(apart=False)]
