"""Which lines of the script a process reached, and by which branches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..where import Where
from .schema import Event

RETURNED = 0
"""Stands for a line where a function returned."""
Plain = bool | int | float | str | None


@dataclass(slots=True)
class Code(Event):
    """A function of the script, or a module's own code, that was entered."""

    number: int
    file: str
    function: str
    line: int
    """Its first."""
    branches: tuple[tuple[int, ...], ...] = ()
    """Lines with a condition, each with the lines that may come next; ``RETURNED`` where none does."""


@dataclass(slots=True)
class Called(Event):
    """The function was entered from this line of the script, which may call it by way of a library."""

    code: int
    """The number of its :class:`Code`."""
    at: Where | None


@dataclass(slots=True)
class Reached(Event):
    """The lines that were reached from one training step to the next, as a difference to the event before it."""

    KEY: ClassVar[str] = "number"
    number: int
    step: int
    """Training steps that had ended when it began."""
    more: tuple[tuple[int, ...], ...] = ()
    """The number of a :class:`Code`, and first and last line of each range that was not reached before."""
    fewer: tuple[tuple[int, ...], ...] = ()
    """Likewise of ranges that were reached before and are not now."""
    order: tuple[tuple[int, int], ...] | None = None
    """Code and line of the conditions, in the order in which each was first reached; None where it is as before."""
    partial: bool = False
    """Whether it may lack lines: there was a pause, or it is still the first part."""


@dataclass(slots=True)
class Decided(Event):
    """What a condition of the script was about to decide by, when a step first came to it."""

    code: int
    line: int
    number: int
    """Of the :class:`Reached` it belongs to."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Each of them :data:`Plain`, by name; those that were not told before, or others then."""
