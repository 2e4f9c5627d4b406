"""Long lists of integers that the recorder keeps beside a record."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

from ddpdoctor.recorder.events.data import Integers

_MOST = 50_000_000


class Numbers(Sequence[int]):
    """A sequence of integers that needs eight bytes for each, and compares with any other sequence."""

    __slots__ = ("_values",)

    def __init__(self, values: Iterable[int] = ()) -> None:
        self._values = values if isinstance(values, array) and values.typecode == "q" else array("q", values)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Numbers: ...
    def __getitem__(self, index: int | slice) -> int | Numbers:
        return Numbers(self._values[index]) if isinstance(index, slice) else self._values[index]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[int]:
        return iter(self._values)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbers):
            return self._values == other._values
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(str(number) for number in self._values[:8])
        return f"Numbers({shown}{', ...' if len(self) > 8 else ''} of {len(self)})"


def read_numbers(record: Path | None, described: Integers | None) -> Numbers | None:
    """A list as an event describes it; None where it is not there, or not whole."""
    if described is None or not 0 <= described.count <= _MOST:
        return None
    if described.step:
        first, step = described.first, described.step
        return Numbers(range(first, first + step * described.count, step))
    if described.offset is None:
        return Numbers(described.values)
    if record is None:
        return None
    return _read(record.with_suffix(".numbers"), described.offset, described.count, described.type)


def _read(file: Path, offset: int, count: int, typecode: str) -> Numbers | None:
    values = array("i" if typecode == "i" else "q")
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            values.frombytes(opened.read(count * values.itemsize))
    except (OSError, ValueError):
        return None
    return Numbers(values) if len(values) == count else None
