"""Reads one dump from its file, pickled or JSON, and again where one of its calls, or their times, are shown."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ddpdoctor.blame.dump import Dump, Entry
from ddpdoctor.blame.frames import is_of_script
from ddpdoctor.hang.flight import fields
from ddpdoctor.hang.flight.reduce import MOST_RANKS, entry_at, reduce
from ddpdoctor.hang.flight.unpickle import Refused, plain
from ddpdoctor.text import shorten, size

LARGEST = 256 << 20
"""Bytes; a pickle of 100,000 entries has 30 MB, and JSON, which writes every frame out, five times that."""
_BUFFER = 1 << 16
"""Bytes; the allocator gives more than 128 KiB back to the system after each file, and takes them anew."""
_NAMED = re.compile(r"rank[_-]?(\d+)", re.IGNORECASE)
_LAST = re.compile(r"(\d+)(?:\.(?:json|pkl|pickle|bin))?$")
_PICKLED = re.compile(rb"\x80[\x02-\x05]")
"""The beginning of a pickle, which is none of a text."""
_LOOKED_AT = 4096
_KEYS = (b"entries", b"pg_config", b"pg_status")


def rank_of(file: Path) -> int | None:
    """The rank that a dump's name tells.

    ``comm_lib_trace_rank_3``, ``nccl_trace_host7_rank_12``, ``rank_3.host7.json``, ``fr3``.
    """
    named = _NAMED.findall(file.name)
    last = _LAST.search(file.name)
    text = named[-1] if named else last[1] if last else ""
    return int(text) if text and len(text) < 8 and int(text) < MOST_RANKS else None


def looks_like_dump(file: Path) -> bool:
    """Whether a file begins as the recorder's do."""
    try:
        with file.open("rb") as opened:
            start = opened.read(_LOOKED_AT).lstrip()
    except OSError:
        return False
    return bool(_PICKLED.match(start)) or (start.startswith(b"{") and any(key in start for key in _KEYS))


def read(file: Path, rank: int) -> Dump:
    """Read a dump and reduce it.

    Raises:
        Refused: it is too large, or not what torch writes.
    """
    return reduce(content(file), rank, file)


def entry(dump: Dump, group: str, number: int) -> Entry | None:
    """One collective in full, read again from its file; None where it is not there any more."""
    try:
        return entry_at(content(dump.file), dump.rank, group, number)
    except (OSError, Refused):
        return None


def content(file: Path) -> dict[str, Any]:
    """What a dump holds, a dictionary with a list of entries, whatever they are.

    Raises:
        Refused: it is too large, or not that.
    """
    length = file.stat().st_size
    if length > LARGEST:
        raise Refused(f"it has {size(length)}; at most {size(LARGEST)} are read")
    with io.BufferedReader(io.FileIO(file), _BUFFER) as opened:
        is_json = opened.peek(_LOOKED_AT).lstrip().startswith(b"{")
        values = _json(opened) if is_json else plain(opened)
    if not isinstance(values, dict) or not isinstance(values.get("entries"), list):
        raise Refused("it has no list of entries")
    return values


def _json(opened: BinaryIO) -> Any:
    try:
        return json.loads(opened.read(LARGEST))
    except MemoryError:
        raise Refused("it requires more memory than a dump needs") from None
    except (ValueError, RecursionError) as broken:
        raise Refused(f"it is not valid JSON: {shorten(ascii(str(broken))[1:-1])}") from None


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
