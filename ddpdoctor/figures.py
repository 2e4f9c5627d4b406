"""What a page shows beside its findings: pictures of a run as plain data. Knows nothing else of ddpdoctor.

Those who know a run make them (``trace``, ``blame``, ``runs``, ``bench``); a page draws them. A figure has
no more rows than a person looks at: who makes it of many ranks chooses the ones that matter, and says so.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, TypeVar

MOST_ROWS = 32
"""Of a figure with a row for each rank."""

T = TypeVar("T")


class Tone(str, Enum):
    """What a colour says; the same in every figure."""

    WORK = "work"
    """Computing: forward, backward, the optimizer's step."""
    DATA = "data"
    """Waiting for a batch."""
    WAIT = "wait"
    """Waiting for other ranks."""
    COLLECTIVE = "collective"
    """Sending and reducing, when all ranks are there."""
    EVALUATION = "evaluation"
    FILES = "files"
    """Saving and loading checkpoints."""
    OTHER = "other"
    """Code of which nothing is known."""
    GOOD = "good"
    BAD = "bad"
    """What a finding is about."""


@dataclass(frozen=True)
class Span:
    """A part of a strip, in the unit of its figure."""

    begin: float
    end: float
    tone: Tone
    about: str = ""
    """What it is, with its numbers."""
    shade: float = 1.0
    """From 0 to 1, where more is darker."""


@dataclass(frozen=True)
class Row:
    """A strip with its name."""

    name: str
    spans: tuple[Span, ...] = ()
    note: str = ""
    """Behind the strip: a total, or how it ended."""
    marked: bool = False
    """Whether a finding is about it."""


def side_by_side(*parts: tuple[float, Tone, str] | tuple[float, Tone, str, float]) -> tuple[Span, ...]:
    """Parts one behind the other, from 0: the length of each, its tone, what it is, its shade; none without length."""
    spans: list[Span] = []
    end = 0.0
    for length, *what in parts:
        if length > 0:
            spans.append(Span(end, end + length, *what))
            end += length
    return tuple(spans)


def cells(
    columns: Sequence[T], cell: Callable[[T], tuple[Tone, str] | tuple[Tone, str, float] | None]
) -> tuple[Span, ...]:
    """A row of a matrix: the tone of each column's cell, what it is, and its shade; None for none."""
    known = ((number, cell(column)) for number, column in enumerate(columns))
    return tuple(Span(number, number + 1, *what) for number, what in known if what)


@dataclass(frozen=True)
class Strips:
    """Rows over one axis: a timeline, bars, or cells of the same length."""

    title: str
    rows: tuple[Row, ...]
    begin: float = 0.0
    end: float = 1.0
    unit: str = ""
    """Of the axis; empty where the axis has no numbers."""
    legend: tuple[tuple[Tone, str], ...] = ()
    """What each colour means here."""
    note: str = ""


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    points: tuple[tuple[float, float], ...]
    marked: bool = False


@dataclass(frozen=True)
class Lines:
    """A chart of lines."""

    title: str
    x: str
    """What the horizontal axis counts."""
    y: str
    """What the vertical axis measures, with its unit."""
    series: tuple[Series, ...]
    x_names: tuple[str, ...] = ()
    """Names of x = 0, 1, 2, ... in place of numbers."""
    logarithmic: bool = False
    """Whether the vertical axis is."""
    x_range: tuple[float, float] | None = None
    """Where several charts have one axis."""
    noisy: bool = False
    """Whether its course is seen better as a mean."""
    note: str = ""


@dataclass(frozen=True)
class Waiter:
    """Ranks in one state, and for which others they wait."""

    ranks: str
    """``ranks 0-1, 3``."""
    state: str
    """``wait in backward at train.py:12``."""
    waits_for: tuple[int, ...] = ()
    """Positions in the graph."""
    culprit: bool = False


@dataclass(frozen=True)
class WaitsFor:
    """A wait-for graph."""

    title: str
    nodes: tuple[Waiter, ...]
    note: str = ""


@dataclass(frozen=True)
class StackFrame:
    """A frame of merged stacks."""

    depth: int
    text: str
    """``train_step (train.py:31)``."""
    ranks: str = ""
    """Where the tree branches: the ranks on this branch."""
    of_script: bool = False
    """Whether it is the script's own."""
    marked: bool = False
    """Whether only culprits are here."""


@dataclass(frozen=True)
class Stacks:
    """Stacks merged into one tree."""

    title: str
    calls: tuple[StackFrame, ...]
    note: str = ""


@dataclass(frozen=True)
class Table:
    """Rows and columns of text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


Figure: TypeAlias = Strips | Lines | WaitsFor | Stacks | Table


@dataclass(frozen=True)
class Section:
    """Figures on one topic."""

    title: str
    text: str = ""
    """What they show, in a sentence."""
    figures: tuple[Figure, ...] = ()


def chosen(ranks: Sequence[int], first: Iterable[int] = (), most: int = MOST_ROWS) -> tuple[int, ...]:
    """The ranks to show of many, in order: these, the most important first, both ends, and some evenly between."""
    if len(ranks) <= most:
        return tuple(ranks)
    wanted = [rank for rank in dict.fromkeys(first) if rank in set(ranks)][: most // 2]
    step = (len(ranks) - 1) / (most - len(wanted) - 1)
    evenly = [ranks[round(number * step)] for number in range(most - len(wanted))]
    return tuple(sorted({*wanted, *evenly}))


def of_many(shown: Sequence[int], ranks: Sequence[int]) -> str:
    """``32 of 512 ranks are shown, ...``; empty where all are."""
    if len(shown) == len(ranks):
        return ""
    return f"{len(shown)} of {len(ranks)} ranks are shown: those that stand out, and some of the others."
