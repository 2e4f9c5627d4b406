"""The record of one process: its events by kind, as checks and views ask for them, and long lists of integers."""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ddpdoctor.blame.frames import from_here
from ddpdoctor.recorder.events.data import Integers
from ddpdoctor.recorder.events.decode import Malformed, decode, head
from ddpdoctor.recorder.events.schema import Event
from ddpdoctor.recorder.where import Site, Where

NUMBERS = ".numbers"
"""How their file ends, beside that of the record."""
_MOST = 50_000_000

E = TypeVar("E", bound=Event)


def lines_of(file: Path) -> Iterator[bytes]:
    """The lines of a process's file; zeros at its end are room that it did not use, and a line cut short is none."""
    with suppress(FileNotFoundError), file.open("rb") as lines:  # a worker's goes with it
        yield from (line for line in lines if line.endswith(b"\n"))


class Record:
    """What a process wrote down. An event is decoded when its kind is asked for."""

    def __init__(
        self, lines: Iterable[bytes] = (), until: float = math.inf, file: Path | None = None
    ) -> None:
        """Keep the lines of the file, as :func:`lines_of` gives them; what is no event is left out, and what was
        written later than ``until``, on the clock of the record."""
        self.file = file
        """None of one that was made by hand."""
        self.last = 0.0
        """When the last event was written."""
        self.malformed: list[str] = []
        """What cannot be read, of the kinds that were asked for."""
        self._lines: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        self._sites: dict[int, Where] = {}
        self._decoded: dict[type[Event], list[tuple[int, Any]]] = {}
        self._events: dict[type[Event], tuple[Any, ...]] = {}
        for position, line in enumerate(lines):
            begins = head(line)
            if begins is not None and begins[1] <= until:
                self._lines[begins[0]].append((position, line))
                self.last = max(self.last, begins[1])
        self.sources: set[str] = set()
        """The files, by absolute paths, in which something was recorded."""
        for _, place in self._read(Site):
            self.sources.add(place.file)
            where = Where(from_here(place.file), place.line, place.function, columns=place.columns)
            self._sites[place.number] = where

    @classmethod
    def made(cls, *events: Event) -> Record:
        """One that holds these events, without a file."""
        record = cls()
        for position, event in enumerate(events):
            record._decoded.setdefault(type(event), []).append((position, event))
        return record

    def events(self, kind: type[E]) -> tuple[E, ...]:
        """All events of a kind in their order; of one that was written again, the last."""
        if kind not in self._events:
            self._events[kind] = tuple(event for _, event in self._known(kind))
        return self._events[kind]

    def together(self, *kinds: type[Event]) -> list[Any]:
        """The events of several kinds in their order."""
        positioned = [pair for kind in kinds for pair in self._known(kind)]
        return [event for _, event in sorted(positioned, key=lambda pair: pair[0])]

    def _known(self, kind: type[Event]) -> list[tuple[int, Any]]:
        if kind not in self._decoded:
            self._decoded[kind] = list(self._read(kind))
        return self._decoded[kind]

    def _read(self, kind: Any) -> Iterable[tuple[int, Any]]:
        """The events with their positions; one that was written again keeps its first."""
        events: dict[Any, tuple[int, Any]] = {}
        name = getattr(kind, "KEY", "")
        for position, line in self._lines.get(kind.__name__, ()):
            try:
                event = decode(kind, line, self._sites)
            except Malformed as wrong:
                self.malformed.append(str(wrong))
                continue
            key = getattr(event, name) if name else position
            events[key] = events.get(key, (position,))[0], event
        return events.values()


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
