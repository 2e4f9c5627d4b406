"""A line of a report for a person, of which the beginning may have a colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum


class Style(Enum):
    """What the beginning of a line is; the values are the parameters of ANSI's escape sequence."""

    FAIL = "1;31"
    WARN = "33"
    PASS = "32"
    FAINT = "2"
    LABEL = "1;36"
    HEADING = "1"


@dataclass(frozen=True)
class Line:
    """Nothing is told by colour alone."""

    text: str
    style: Style | None = None
    length: int = 0
    """Characters at its beginning that have the style."""

    @property
    def painted(self) -> str:
        """With escape sequences."""
        if self.style is None:
            return self.text
        return f"\x1b[{self.style.value}m{self.text[: self.length]}\x1b[0m{self.text[self.length :]}"


def plain(lines: Iterable[str]) -> Iterator[Line]:
    """Lines without a style."""
    return map(Line, lines)


def styled(lines: list[str], style: Style, length: int) -> Iterator[Line]:
    """Lines of which the first begins with so many characters of a style."""
    yield Line(lines[0], style, length)
    yield from plain(lines[1:])
