"""Keeps long lists of integers, the order of a pass above all, in a file beside the record."""

from __future__ import annotations

import os
import zlib
from array import array
from collections.abc import Iterable

from .events.data import Integers
from .session import Session

_SHORT = 32
"""Integers that stand in the event itself."""
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_MOST_BYTES = 32 << 20
"""Of one process."""


class Numbers:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._name = ""
        self._size = 0
        self._known: dict[tuple[int, int], Integers] = {}

    def store(self, numbers: Iterable[int]) -> Integers | None:
        """Keep a list and describe where it is; None where there is no more room."""
        values = numbers if isinstance(numbers, array) else array("q", numbers)
        if len(values) <= _SHORT:
            return Integers(len(values), tuple(values))
        step = values[1] - values[0]
        if step and _is_even(values, step):
            return Integers(len(values), first=values[0], step=step)
        return self._store(values)

    def _store(self, values: array[int]) -> Integers | None:
        if self._name != self._session.writer.name:  # the first, or the first after a fork
            self._name, self._size, self._known = self._session.writer.name, 0, {}
        key = (zlib.crc32(values), len(values))
        if key not in self._known:
            packed = _pack(values)
            if self._size + len(packed) * packed.itemsize > _MOST_BYTES:
                return None
            self._known[key] = Integers(len(values), offset=self._size, type=packed.typecode)
            self._append(packed)
        return self._known[key]

    def _append(self, packed: array[int]) -> None:
        path = os.path.join(self._session.folder, f"{self._name}.numbers")
        # As open() would do it in three times as long.
        file, data = os.open(path, _APPENDING, 0o600), memoryview(packed).cast("B")
        try:
            while data:
                data = data[os.write(file, data) :]
        finally:
            os.close(file)
        self._size += len(packed) * packed.itemsize


def _is_even(values: array[int], step: int) -> bool:
    first, count = values[0], len(values)
    # The last one alone tells most orders apart, at no cost.
    return values[-1] == first + step * (count - 1) and values == array(
        "q", range(first, first + step * count, step)
    )


def _pack(values: array[int]) -> array[int]:
    try:
        return array("i", values)
    except OverflowError:
        return values
