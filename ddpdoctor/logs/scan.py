"""Finds the few lines worth reading in a stream of any size, in bounded memory."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

LONGEST_LINE = 64 * 1024
"""Bytes; of a longer line the beginning is read."""
MOST_SHAPES = 100_000
LONGEST_SHAPE = 2048
"""Bytes; a longer line is looked at each time."""
CONTEXT = 40
"""Lines read after one that is about an exception, whose message goes on without any particular word."""
SAMPLES = 32
"""Lines read of NCCL's information that differ in numbers only: large jobs write millions of them."""

_ABOUT_EXCEPTIONS = (
    b"Traceback (most",
    b'File "',
    b"Error",
    b"Exception",
    b"async exception",
    b"terminate called",
    b"Fatal Python error",
)
_TRAINING = re.compile(
    rb"(?i)loss\w*['\"]?\W{0,4}\d|\b(?:epoch|step|iter(?:ation)?)\b\W{0,4}\d|\bit/s\]|\bs/it\]"
)
_OF_NO_TRAINING = re.compile(rb"^#|slurmstepd: |srun: ")
"""Tools write settings after #; Slurm's own steps have numbers, too."""
_BAR = re.compile(rb"\d[kMGT]?B?/\d[\d.]*[kMGT]?B?\s+\[[\d:]{4,}<|\d [a-z]{2,12} \[[\d:]{4,}, ")
_INFORMATION = b" NCCL INFO "
_DIGITS = b"0123456789"
_MOST_TRAINING = 64


@dataclass
class _Kind:
    """What lines of one shape are."""

    groups: frozenset[int] = frozenset()
    """The groups of words that have one in such a line."""
    trains: bool = False
    bar: bool = False
    raises: bool = False
    left: int = 0
    """How many more of them are to be read; -1 for all."""


_NEW = _Kind()
"""Stands for a shape that was not seen yet."""


@dataclass(frozen=True)
class Selected:
    """A line worth reading."""

    place: int
    """Among all lines of all streams, counted from one."""
    raw: bytes
    groups: frozenset[int]
    """The groups of words that have one in this line; none for a line that follows an exception."""


class Scanner:
    """Tells lines apart by their shape, which is the line without digits.

    A job repeats itself: thousands of lines differ in nothing but numbers. Words have no digits, so the shape of a
    line decides whether one stands in it, and each shape is looked at once. A line with a word of any group is worth
    reading.
    """

    def __init__(self, groups: Sequence[Sequence[str]]) -> None:
        self._groups = [tuple(dict.fromkeys(word.encode() for word in words)) for words in groups]
        self._kinds: dict[bytes, _Kind | None] = {}
        self._dull: set[bytes] = set()
        """The shapes whose kind is None."""
        self._until = 0
        self.read = 0
        """Lines read so far, of all streams."""
        self.training: deque[tuple[int, bytes]] = deque(maxlen=_MOST_TRAINING)
        """Place and text of the last lines that show training to go on."""
        self.bars: deque[tuple[int, bytes]] = deque(maxlen=_MOST_TRAINING)
        """Place and text of the last progress bars."""
        self.last: tuple[int, bytes] | None = None
        """Place and text of the last line that is not empty."""

    def scan(self, chunks: Iterable[bytes]) -> Iterator[Selected]:
        """The lines of one stream that are worth reading."""
        rest = b""
        for chunk in chunks:
            whole, newline, rest = (rest + chunk).rpartition(b"\n")
            if newline:
                yield from self._select(whole)
            if len(rest) > LONGEST_LINE:
                rest = _shortened(rest)
        if rest:
            yield from self._select(rest)

    def _select(self, text: bytes) -> Iterator[Selected]:
        """The lines of interest, found without a step of Python for each line that is of none."""
        shapes = text.translate(None, _DIGITS).split(b"\n")
        first = self.read + 1
        self.read += len(shapes)
        self._note_last(text)
        if self._dull.issuperset(shapes) and first > self._until:
            return
        lines = text.split(b"\n")
        kinds = map(self._kinds.get, shapes, repeat(_NEW))
        dull_from = 0
        for number in [number for number, kind in enumerate(kinds) if kind is not None]:
            yield from self._context(lines, dull_from, number, first)
            dull_from = number + 1
            shape = shapes[number]
            kind = self._kinds.get(shape, _NEW)
            if kind is _NEW:
                kind = self._look(shape, lines[number])
            if kind is not None:
                yield from self._of_kind(kind, first + number, lines[number], shape)
            else:
                yield from self._context(lines, number, number + 1, first)
        yield from self._context(lines, dull_from, len(lines), first)

    def _context(self, lines: Sequence[bytes], start: int, end: int, first: int) -> Iterator[Selected]:
        """Of these lines, which have no word, those that follow an exception."""
        for number in range(start, min(end, self._until - first + 1)):
            yield Selected(first + number, _shortened(lines[number]), frozenset())

    def _of_kind(self, kind: _Kind, place: int, line: bytes, shape: bytes) -> Iterator[Selected]:
        if kind.trains or kind.bar:
            self._note_progress(kind, place, line)
        if kind.raises:
            self._until = place + CONTEXT
        if kind.left > 0:
            kind.left -= 1
            if not kind.left:
                self._kinds[shape] = None
                self._dull.add(shape)
        elif kind.left == 0 and place > self._until:
            return
        yield Selected(place, _shortened(line), kind.groups)

    def _look(self, shape: bytes, line: bytes) -> _Kind | None:
        """What a new shape is; None for lines that are of no interest."""
        groups = frozenset(n for n, words in enumerate(self._groups) if any(word in shape for word in words))
        raises = any(word in shape for word in _ABOUT_EXCEPTIONS)
        begin = line[:LONGEST_SHAPE]
        trains = not _OF_NO_TRAINING.search(begin) and _TRAINING.search(begin) is not None
        bar = _BAR.search(begin) is not None
        wanted = bool(groups) or raises
        left = (SAMPLES if _INFORMATION in shape else -1) if wanted else 0
        kind = _Kind(groups, trains, bar, raises, left) if wanted or trains or bar else None
        if len(shape) <= LONGEST_SHAPE:
            if len(self._kinds) >= MOST_SHAPES:
                self._kinds.clear()
                self._dull.clear()
            self._kinds[shape] = kind
            if kind is None:
                self._dull.add(shape)
        return kind

    def _note_last(self, text: bytes) -> None:
        if end := len(text.rstrip()):
            start = text.rfind(b"\n", 0, end) + 1
            self.last = self.read - text.count(b"\n", end), text[start:end]

    def _note_progress(self, kind: _Kind, place: int, line: bytes) -> None:
        if kind.trains:
            self.training.append((place, _shortened(line)))
        if kind.bar:
            self.bars.append((place, _shortened(line)))


def _shortened(line: bytes) -> bytes:
    """What a terminal would show of a line that is too long: from its last carriage return, then the beginning."""
    if len(line) <= LONGEST_LINE:
        return line
    return line[line.rfind(b"\r", 0, len(line) - 1) + 1 :][:LONGEST_LINE]
