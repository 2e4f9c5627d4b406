"""Long lists of integers that the recorder keeps beside a record."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from pathlib import Path

from ddpdoctor.recorder.events.data import Integers

NUMBERS = ".numbers"
"""How their file ends, beside that of the record."""
_MOST = 50_000_000


def read_numbers(record: Path | None, described: Integers | None) -> Sequence[int] | None:
    """A list as an event describes it; None where it is not there, or incomplete."""
    if described is None or not 0 <= described.count <= _MOST:
        return None
    if described.step:
        first, step = described.first, described.step
        return range(first, first + step * described.count, step)
    if described.offset is None:
        return described.values
    if record is None:
        return None
    return _read(record.with_suffix(NUMBERS), described.offset, described.count, described.type)


def is_missing(record: Path | None, described: Integers | None) -> bool:
    """Whether the bytes of a list are not in its file, which was left behind or cut short."""
    if record is None or described is None or described.offset is None:
        return False
    file = record.with_suffix(NUMBERS)
    end = described.offset + described.count * array("i" if described.type == "i" else "q").itemsize
    return not file.exists() or file.stat().st_size < end


def _read(file: Path, offset: int, count: int, typecode: str) -> Sequence[int] | None:
    values = array("i" if typecode == "i" else "q")
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            values.frombytes(opened.read(count * values.itemsize))
    except (OSError, ValueError):
        return None
    return values if len(values) == count else None
