"""The trace of a job that runs, or that somebody has looked at while it ran: what was seen of it, and its records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ddpdoctor.hang.standstill import Standstill
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.reader import Recorded, read_run


def live_trace(standstill: Standstill, records: Path | None = None) -> Trace:
    """What checks judge.

    Args:
        records: the folder into which our recorder writes, or has written; None where it is not in there.
    """
    recorded = read_run(records) if records else Recorded()
    joined = [event for one in recorded.ranks.values() for event in one.groups if event.action == "init"]
    size = standstill.world_size or max((event.size or 0 for event in joined), default=0) or None
    timeouts = [event.arguments.get("timeout") for event in joined]
    timeout = standstill.timeout or next((one for one in timeouts if one), None)
    processes = standstill.ranks
    ranks = tuple(
        RankTrace(
            rank,
            stack=processes[rank].stack if rank in processes else (),
            recording=recorded.ranks.get(rank),
        )
        for rank in sorted({*processes, *recorded.ranks})
    )
    standstill = replace(standstill, world_size=size, timeout=timeout)
    return Trace(ranks, seconds=standstill.seconds, world_size=size, standstill=standstill)
