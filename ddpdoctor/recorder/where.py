"""A place in the user's code."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Where:
    """A place in the user's code; ``file`` is relative to the working directory where it lies below it."""

    file: str
    line: int | None = None
    function: str | None = None
    columns: tuple[int, int] | None = field(default=None, compare=False, kw_only=True)
    """First and end of the expression on the line, in bytes of UTF-8, where Python knows it (from 3.11 on)."""


@dataclass(frozen=True, eq=False)
class Site(Where):
    """A place in the process that is recorded: written down once with its number, which stands for it in events."""

    number: int = -1

    __eq__ = object.__eq__  # there is one of each place, and comparing texts would cost every training step
    __hash__ = object.__hash__
