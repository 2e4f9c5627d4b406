"""A line of a report for a person, of which parts may have a colour."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class Style(Enum):
    """What a part of a line is; the values are the parameters of ANSI's escape sequence."""

    FAIL = "1;31"
    WARN = "33"
    PASS = "32"
    FAINT = "2"
    LABEL = "1;36"
    HEADING = "1"


@dataclass(frozen=True)
class Part:
    """A part of a line that has a style."""

    start: int
    end: int
    style: Style


@dataclass(frozen=True)
class Line:
    """Nothing is told by colour alone."""

    text: str
    parts: tuple[Part, ...] = ()
    """From left to right."""

    def painted(self) -> str:
        """With the escape sequences of its colours."""
        pieces, end = [], 0
        for part in self.parts:
            text = self.text[part.start : part.end]
            pieces += [self.text[end : part.start], f"\x1b[{part.style.value}m{text}\x1b[0m"]
            end = part.end
        return "".join((*pieces, self.text[end:]))


def beginning(text: str, style: Style, length: int) -> Line:
    """A line that begins with so many characters of a style."""
    return Line(text, (Part(0, length, style),))


def plain(lines: Iterable[str]) -> Iterator[Line]:
    """Lines without a style."""
    return map(Line, lines)


def styled(lines: list[str], style: Style, length: int) -> Iterator[Line]:
    """Lines of which the first begins with so many characters of a style."""
    yield beginning(lines[0], style, length)
    yield from plain(lines[1:])
