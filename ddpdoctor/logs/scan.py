"""Finds the few lines worth reading in a stream of any size, in bounded memory."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

LONGEST_LINE = 64 * 1024
"""Bytes; of a longer line the beginning is read."""
MOST_SHAPES = 200_000
LONGEST_SHAPE = 2048
"""Bytes; a longer line is looked at each time."""
CONTEXT = 40
"""Lines read after one that is about an exception, whose message goes on without any particular word."""
_ABOUT_EXCEPTIONS = (b"Traceback (most", b'File "', b"Error", b"Exception")
_TRAINING = re.compile(
    rb"(?i)loss\w*['\"]?\W{0,4}\d|\b(?:epoch|step|iter(?:ation)?)\b\W{0,4}\d|\bit/s\]|\bs/it\]"
)
_DIGITS = b"0123456789"
_MOST_TRAINING = 64
_BAR = re.compile(rb"\d/\d+\s+\[[\d:]{4,}<")
_READ, _DULL, _TRAINS, _SHOWS_BAR = range(4)


class Scanner:
    """Tells lines apart by their shape, which is the line without digits.

    A job repeats itself: thousands of lines differ in nothing but numbers. Words have no digits, so the shape of a
    line decides whether one stands in it, and each shape is looked at once.

    Args:
        words: every line with one of them is read.
        samples: of lines with one of these, the first of each shape is read.
    """

    def __init__(self, words: Sequence[str], samples: Sequence[str] = ()) -> None:
        self._words = tuple(dict.fromkeys(word.encode() for word in words)) + _ABOUT_EXCEPTIONS
        self._samples = tuple(word.encode() for word in samples)
        self._kinds: dict[bytes, int] = {}
        self.read = 0
        """Lines read so far, of all streams."""
        self.training: deque[tuple[int, bytes]] = deque(maxlen=_MOST_TRAINING)
        """Place and text of the last lines that show training to go on."""
        self.bars: deque[tuple[int, bytes]] = deque(maxlen=_MOST_TRAINING)
        """Place and text of the last progress bars."""
        self.last: tuple[int, bytes] | None = None
        """Place and text of the last line that is not empty."""
        self._until = 0

    def scan(self, chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
        """Places among all lines of all streams, counted from one, and the lines worth reading."""
        rest = b""
        for chunk in chunks:
            *whole, rest = (rest + chunk).split(b"\n")
            yield from self._select(whole)
            if len(rest) > LONGEST_LINE:
                rest = _shortened(rest)
        if rest:
            yield from self._select([rest])

    def _select(self, lines: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
        first, kinds, until = self.read + 1, self._kinds, self._until
        self._note_last(lines, first)
        self.read += len(lines)
        for place, line in enumerate(lines, first):
            shape = line.translate(None, _DIGITS)
            kind = kinds.get(shape)
            if kind == _DULL and place > until:
                continue
            if kind is None:
                kind, sampled = self._look(shape, line)
                if sampled:
                    yield place, _shortened(line)
                    continue
            if kind in (_TRAINS, _SHOWS_BAR):
                self._note_progress(kind, place, line)
            if kind == _READ and any(word in shape for word in _ABOUT_EXCEPTIONS):
                until = place + CONTEXT
            if kind == _READ or place <= until:
                yield place, _shortened(line)
        self._until = until

    def _look(self, shape: bytes, line: bytes) -> tuple[int, bool]:
        """What a new shape is, and whether this one line of it is to be read all the same."""
        if any(word in shape for word in self._words):
            return self._keep(shape, _READ), False
        sampled = any(word in shape for word in self._samples)
        begin = line[:LONGEST_SHAPE]
        trains = _TRAINING.search(begin) and not begin.startswith(b"#")  # as tools write their settings
        kind = _TRAINS if trains else _SHOWS_BAR if _BAR.search(begin) else _DULL
        return self._keep(shape, kind), sampled

    def _note_last(self, lines: Sequence[bytes], first: int) -> None:
        for number in range(len(lines) - 1, -1, -1):
            if not lines[number].isspace() and lines[number]:
                self.last = first + number, lines[number]
                return

    def _note_progress(self, kind: int, place: int, line: bytes) -> None:
        shown = line.rstrip(b"\r").rpartition(b"\r")[
            2
        ]  # what the terminal shows of a bar that was drawn over
        if kind == _TRAINS:
            self.training.append((place, shown))
        if _BAR.search(shown):
            self.bars.append((place, shown))

    def _keep(self, shape: bytes, kind: int) -> int:
        if len(shape) <= LONGEST_SHAPE:
            if len(self._kinds) >= MOST_SHAPES:
                self._kinds.clear()
            self._kinds[shape] = kind
        return kind


def _shortened(line: bytes) -> bytes:
    """What a terminal would show of a line that is too long: from its last carriage return, then the beginning."""
    if len(line) <= LONGEST_LINE:
        return line
    return line[line.rfind(b"\r", 0, len(line) - 1) + 1 :][:LONGEST_LINE]
