"""Reads one dump from its file, pickled or JSON, and again where one of its calls is shown."""

import io
import json
import re
from pathlib import Path
from typing import Any, BinaryIO

from ddpdoctor.blame.hang_snapshot import Dump, Entry
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
    """The rank that a dump's name tells: ``comm_lib_trace_rank_3``, ``nccl_trace_host7_rank_12``,
    ``rank_3.host7.json``, ``fr3``."""
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
    """Read a dump and reduce it. Raises Refused where it is too large, or not what torch writes."""
    return reduce(content(file), rank, file)


def entry(dump: Dump, group: str, number: int) -> Entry | None:
    """One collective in full, read again from its file; None where it is not there any more."""
    try:
        return entry_at(content(dump.file), dump.rank, group, number)
    except (OSError, Refused):
        return None


def content(file: Path) -> dict[str, Any]:
    """What a dump holds, a dictionary with a list of entries. Raises Refused of all else, or what is too large."""
    length = file.stat().st_size
    if length > LARGEST:
        raise Refused(f"it has {size(length)}; at most {size(LARGEST)} are read")
    with io.BufferedReader(io.FileIO(file), _BUFFER) as opened:
        is_json = opened.peek(_LOOKED_AT).lstrip().startswith(b"{")
        values = _json(opened) if is_json else plain(opened)
    if isinstance(values, dict) and "pg_config" in values:
        values.setdefault("entries", [])  # JSON of a recorder that holds none leaves them out
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
