"""Traces of training runs, as plain data."""

from typing import Any

from ddpdoctor.blame.frames import Failure
from ddpdoctor.trace import RankTrace, Trace

SUMMARY = {
    "first_loss": 5.7,
    "last_loss": 3.2,
    "evaluation_loss": 3.1,
    "steps": 16,
    "weights": "a1b2",
    "difference": None,
}
CLOSED_BY_PEER = "[pair.cc:553] Connection closed by peer [127.0.0.1]:56199."


def finished(rank: int, **changes: Any) -> RankTrace:
    """A rank that reached its end; keywords change what it says of itself."""
    return RankTrace(rank, finished=True, summary={**SUMMARY, **changes})


def failed(rank: int, message: str, time: float = 1.0, kind: str = "RuntimeError") -> RankTrace:
    """A rank that raised."""
    traceback = (
        'Traceback (most recent call last):\n  File "/jobs/train.py", line 12, in main\n    step()\n'
        '  File "/venv/lib/python3.11/site-packages/torch/x.py", line 9, in all_reduce\n'
        f"    work.wait()\n{kind}: {message}\n"
    )
    return RankTrace(rank, failure=Failure(kind, message, traceback, time), exit_code=1)


def healthy(nproc: int = 2, **fields: Any) -> Trace:
    """A run in which every rank reached its end."""
    return Trace(tuple(finished(rank) for rank in range(nproc)), seconds=4.0, **fields)


def broken(*ranks: RankTrace, **fields: Any) -> Trace:
    """A run that torchrun ended with exit status 1."""
    return Trace(ranks, status=1, seconds=4.0, **fields)
