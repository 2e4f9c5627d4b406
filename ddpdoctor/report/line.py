"""A line of a report for a person, of which parts may have a colour, or be a link."""

from __future__ import annotations

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
    """A part of a line that has a style, or leads to a file."""

    start: int
    end: int
    style: Style | None = None
    link: str = ""
    """An address that holds no control character."""

    def painted(self, text: str, *, colour: bool, links: bool) -> str:
        """The part's text with escape sequences."""
        if self.style and colour:
            text = f"\x1b[{self.style.value}m{text}\x1b[0m"
        return f"\x1b]8;;{self.link}\x1b\\{text}\x1b]8;;\x1b\\" if self.link and links else text


@dataclass(frozen=True)
class Line:
    """Nothing is told by colour alone."""

    text: str
    parts: tuple[Part, ...] = ()
    """From left to right."""

    def painted(self, *, colour: bool, links: bool) -> str:
        """With the escape sequences that the terminal takes."""
        pieces, end = [], 0
        for part in self.parts:
            text = self.text[part.start : part.end]
            pieces += [self.text[end : part.start], part.painted(text, colour=colour, links=links)]
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
