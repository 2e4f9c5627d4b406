"""The trace of a job that runs, or that somebody has looked at while it ran: what was seen of it, and its records."""

from dataclasses import replace
from pathlib import Path

from ddpdoctor.blame.hang_snapshot import HangSnapshot
from ddpdoctor.hang.flight.unpickle import Refused
from ddpdoctor.hang.snapshots import RECORDS
from ddpdoctor.redact import quote
from ddpdoctor.text import shorten
from ddpdoctor.trace import RankTrace, Trace
from ddpdoctor.trace.reader import Recorded, read_run
from ddpdoctor.trace.recording import Recording

LARGEST_RECORD = 1 << 30
"""Bytes of one process's record; that of a day has a tenth of it."""


def live_trace(snapshot: HangSnapshot, recorded: Recorded) -> Trace:
    """What checks judge, with what our recorder has written so far; nothing where it is not in there."""
    joined = [event for rank in recorded.ranks.values() for event in rank.group_events("init")]
    size = snapshot.world_size or max((event.size or 0 for event in joined), default=0) or None
    timeouts = [event.arguments.get("timeout") for event in joined]
    timeout = snapshot.timeout or next((timeout for timeout in timeouts if timeout), None)
    processes = snapshot.ranks
    ranks = tuple(
        RankTrace(
            rank,
            stack=processes[rank].stack if rank in processes else (),
            recording=recorded.ranks.get(rank),
        )
        for rank in sorted({*processes, *recorded.ranks})
    )
    snapshot = replace(snapshot, world_size=size, timeout=timeout)
    return Trace(ranks, seconds=snapshot.seconds, world_size=size, snapshot=snapshot)


def read_records(*folders: Path) -> Recorded:
    """What our recorder wrote of the same jobs, if it was there; refused where a record is not what it writes."""
    ranks: dict[int, Recording] = {}
    others: list[Recording] = []
    places = [place for folder in folders for place in (folder, *folder.glob("*"))]
    for folder in (place / RECORDS for place in places):
        for file in folder.glob("*.jsonl") if folder.is_dir() else ():
            if not file.is_file() or file.is_symlink() or file.stat().st_size > LARGEST_RECORD:
                raise Refused(f"{quote(file.name)} is no record: too large, or no file")
        try:
            recorded = read_run(folder)
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RecursionError) as wrong:
            error = shorten(f"{type(wrong).__name__}: {wrong}")
            raise Refused(f"a record is not what the recorder writes: {error}") from None
        ranks.update(recorded.ranks)
        others += recorded.others
    return Recorded(ranks, tuple(others))
