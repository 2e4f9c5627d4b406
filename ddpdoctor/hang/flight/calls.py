"""When the calls were made that a dump holds, read again from its file, one dump at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ddpdoctor.blame.dump import Dump
from ddpdoctor.blame.frames import is_of_script
from ddpdoctor.hang.flight import fields
from ddpdoctor.hang.flight.reading import content
from ddpdoctor.hang.flight.unpickle import Refused

_MOST_NANOSECONDS = 1 << 62


@dataclass(frozen=True)
class DumpedCall:
    """One call, in seconds since the epoch."""

    operation: str
    group: str
    number: int
    state: str
    shapes: str
    begin: float
    end: float | None
    """None where it is not told, as gloo's; the time of the last entry where it did not complete."""
    at: str | None
    """The script's line."""


def calls(dump: Dump) -> Iterator[DumpedCall]:
    """The calls of a dump, oldest first; none where its file is not there any more."""
    try:
        entries = content(dump.file)["entries"]
        last = max((_time(entry, "time_created_ns") or 0.0 for entry in entries), default=0.0)
        for position, values in enumerate(entries):
            yield _call(values, dump.rank, position, last)
    except (OSError, Refused, *fields.WRONG):
        return


def _call(values: fields.Values, rank: int, position: int, last: float) -> DumpedCall:
    entry = fields.entry(values, rank, position)
    begin = _time(values, "time_created_ns") or 0.0
    end = last if fields.is_pending(values) else _time(values, "time_discovered_completed_ns")
    frame = next((frame for frame in entry.frames if is_of_script(frame)), None)
    number = values["p2p_seq_id"] if values.get("is_p2p") else entry.number
    at = f"{frame.file}:{frame.line} in {frame.function}" if frame else None
    return DumpedCall(entry.operation, entry.group, number, entry.state, entry.shapes, begin, end, at)


def _time(values: fields.Values, name: str) -> float | None:
    nanoseconds: Any = values.get(name)
    if nanoseconds.__class__ is not int or not 0 < nanoseconds < _MOST_NANOSECONDS:
        return None
    return float(nanoseconds) / 1e9
