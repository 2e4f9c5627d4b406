"""What ``figures.html`` needs to know of a figure: places, in thousandths of the room that there is, and words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias

from ddpdoctor.figures import Figure, Lines, Row, Series, Span, StackFrame, Strips, Tone, WaitsFor
from ddpdoctor.text import duration

_THINNEST = 0.8
"""Thousandths of a span, so that a short one is seen."""
MOST_TITLES = 4000
"""Spans that say what they are when pointed at; of more, a page would be too large."""
_MOST_COLOURED = 8
_MOST_DOTS, _FEW = 40, 6
"""Points of a line that are marked; values of x that are all named on the axis."""
_MOST_VALUES = 16
"""Of a row, as text."""
_FOLDED = 3
"""Frames of libraries in a row, from which they are folded."""
_NODE, _GUTTER = 80, 56
"""Pixels of a row of the wait-for graph, as style.css has it, and left of it."""
Tick: TypeAlias = tuple[float, str]
"""The share of an axis, and what stands there."""
Entry: TypeAlias = tuple[str, str, str]
"""Of a legend: class, style, text."""


def says_something(figure: Figure) -> bool:
    """Whether there is more than one value to compare."""
    match figure:
        case Strips():
            return any(row.spans for row in figure.rows)
        case Lines():
            values = {point for series in figure.series for point in series.points if math.isfinite(point[1])}
            return len(values) > 1
    return True


def shared_legend(figures: Sequence[Figure]) -> tuple[Entry, ...]:
    """One legend for all strips of a section; empty where a colour means two things."""
    entries = dict.fromkeys(entry for figure in figures for entry in legend_of(figure))
    meanings = {(kind, style) for kind, style, _ in entries}
    return tuple(entries) if len(meanings) == len(entries) else ()


def legend_of(figure: Figure) -> tuple[Entry, ...]:
    """What colours mean in strips."""
    if not isinstance(figure, Strips):
        return ()
    return tuple((tone.value, "", text) for tone, text in figure.legend)


def unit_name(figure: Strips) -> str:
    """The unit of an axis."""
    return _unit(figure)[1]


def _unit(figure: Strips) -> tuple[float, str]:
    """What makes numbers of a figure those of its axis, and their unit."""
    if figure.unit != "s":
        return 1.0, figure.unit
    return (1000.0, "milliseconds") if figure.end - figure.begin < 1 else (1.0, "seconds")


def spans(row: Row, figure: Strips) -> Iterator[tuple[str, str, Span, str]]:
    """Begin, width and what is said of each part of a row."""
    titled = sum(len(each.spans) for each in figure.rows) <= MOST_TITLES
    scale = 1000 / ((figure.end - figure.begin) or 1.0)
    for span in row.spans:
        width = max((span.end - span.begin) * scale, _THINNEST)
        yield f"{(span.begin - figure.begin) * scale:.4g}", f"{width:.4g}", span, span.about if titled else ""


def in_words(row: Row, figure: Strips) -> str:
    """The row for who does not see it: how much of what."""
    amounts: dict[Tone, float] = {}
    for span in row.spans:
        if span.shade >= 1:
            amounts[span.tone] = amounts.get(span.tone, 0.0) + span.end - span.begin
    words = dict(figure.legend)
    parts = [f"{words[tone]} {_amount(length, figure)}" for tone, length in amounts.items() if tone in words]
    return ", ".join([row.name, *parts, *([row.note] if row.note else [])])


def _amount(length: float, figure: Strips) -> str:
    return duration(length) if figure.unit == "s" else f"{length:g} {figure.unit}"


def values_of_strips(figure: Strips) -> list[tuple[str, list[str], int]]:
    """What the longest parts of each row are, in their order, and how many are left out."""
    rows = []
    for row in figure.rows:
        told = [span for span in row.spans if span.about]
        longest = sorted(told, key=lambda span: span.begin - span.end)[:_MOST_VALUES]
        texts = [span.about for span in sorted(longest, key=lambda span: span.begin)]
        if texts:
            rows.append((row.name, texts, len(told) - len(texts)))
    return rows


def places(figure: Strips) -> Iterator[Tick]:
    """Numbers at round places."""
    scale, _ = _unit(figure)
    for value in round_values(figure.begin * scale, figure.end * scale):
        yield (value / scale - figure.begin) / ((figure.end - figure.begin) or 1), f"{value:g}"


def round_values(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two others, evenly spaced."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


class Line:
    """A line of a chart: its course where it has one, and its points where they are few."""

    def __init__(self, series: Series, colour: str, chart: Chart) -> None:
        self.name, self.colour = series.name, colour
        known = chart.drawn(series.points)
        at = [f"{1000 * chart.x(x):.4g} {1000 * chart.y(y):.4g}" for x, y in known]
        # Two points tell nothing of what lies between.
        self.course = "M" + "L".join(at) if len(at) > 2 else ""
        told = [f"{chart.name_of(x)}: {y:.4g}" for x, y in known]
        dots = list(zip(at, told, strict=True)) if len(known) <= _MOST_DOTS else []
        self.dots = [(place, f"{series.name}: {text}") for place, text in dots]
        left = max(len(told) - _MOST_VALUES, 0)
        every = math.ceil(len(told) / _MOST_VALUES) or 1
        self.values = (series.name or "values", told[::every], left and len(told) - len(told[::every]))


class Chart:
    """Where the points of a chart lie in it, as shares of its width and height."""

    def __init__(self, figure: Lines) -> None:
        self._logarithmic, self._names = figure.logarithmic, figure.x_names
        points = [point for series in figure.series for point in self.drawn(series.points)]
        self._left, self._right = figure.x_range or (min(x for x, _ in points), max(x for x, _ in points))
        low, high = min(self._height(y) for _, y in points), max(self._height(y) for _, y in points)
        if not figure.logarithmic and 0 < low < 0.75 * high:
            low = 0.0  # lengths from zero are compared at a glance
        room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        self._low, self._high = low - (room if low else 0.0), high + room
        self.left = [(self.y(it), f"{it:.3g}" if abs(it) < 1000 else f"{it:,.0f}") for it in self._y_values()]
        self.below = [(self.x(value), text) for value, text in self._x_values({x for x, _ in points})]
        marked = sorted(figure.series, key=lambda series: series.marked)
        crowded = len(marked) > _MOST_COLOURED
        colours = ["--bad" if each.marked else "--other" for each in marked]
        if not crowded:
            marked, colours = list(figure.series), [f"--s{number}" for number in range(len(marked))]
        self.lines = [Line(series, colour, self) for series, colour in zip(marked, colours, strict=True)]
        self.values = [line.values for line in self.lines if line.values[1]]
        named = not crowded and (len(marked) > 1 or marked[0].name)
        self.legend = [("line", f"background:var({line.colour})", line.name) for line in self.lines if named]
        in_red = ", ".join(series.name for series in marked if series.marked)
        self.crowd = f"{len(marked)} lines{f', in red {in_red}' if in_red else ''}" if crowded else ""

    def drawn(self, points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        """The points that have a place."""
        return [it for it in points if all(map(math.isfinite, it)) and (it[1] > 0 or not self._logarithmic)]

    def _height(self, y: float) -> float:
        return math.log10(y) if self._logarithmic else y

    def x(self, value: float) -> float:
        """From the left."""
        return (value - self._left) / (self._right - self._left) if self._right > self._left else 0.5

    def y(self, value: float) -> float:
        """From the top."""
        return (self._high - self._height(value)) / (self._high - self._low)

    def name_of(self, x: float) -> str:
        """What the axis says there."""
        return self._names[int(x)] if self._names else f"{x:g}"

    def _y_values(self) -> list[float]:
        if not self._logarithmic:
            return round_values(self._low, self._high, 5)
        powers = range(math.ceil(self._low), math.floor(self._high) + 1)
        # Between two powers of ten there is hardly one: then round numbers are named.
        if len(powers) > 2:
            return [10.0**power for power in powers]
        return [value for value in round_values(10**self._low, 10**self._high, 5) if value > 0]

    def _x_values(self, there: set[float]) -> list[tuple[float, str]]:
        if self._names:
            return [(float(number), name) for number, name in enumerate(self._names)]
        values = sorted(there) if len(there) <= _FEW else round_values(self._left, self._right)
        return [(value, f"{value:g}") for value in values]


def chart(figure: Lines) -> Chart | None:
    """None where there is nothing to draw."""
    try:
        return Chart(figure)
    except ValueError:  # of no points there is no smallest
        return None


def edges(figure: WaitsFor) -> list[tuple[int, int, tuple[str, str]]]:
    """Who waits for whom, and the arrow between them."""
    pairs = [(number, target) for number, node in enumerate(figure.nodes) for target in node.waits_for]
    return [(begin, end, _arrow(lane, begin, end)) for lane, (begin, end) in enumerate(pairs)]


def _arrow(lane: int, begin: int, end: int) -> tuple[str, str]:
    """From the middle of one box, left of all boxes, to that of another: its course, and its head."""
    far = _GUTTER - 18 - 9 * (lane % 4)
    out, into = _NODE * (begin + 0.5) + 8, _NODE * (end + 0.5) - 8
    if begin > end:
        out, into = out - 16, into + 16
    bend = 10 if out < into else -10
    leaves = f"M{_GUTTER} {out:g}H{far + 10}Q{far} {out:g} {far} {out + bend:g}"
    arrives = f"V{into - bend:g}Q{far} {into:g} {far + 10} {into:g}H{_GUTTER - 8}"
    return leaves + arrives, f"M{_GUTTER} {into:g}l-10 -6v12z"


def folded_calls(calls: Sequence[StackFrame]) -> Iterator[tuple[bool, list[StackFrame]]]:
    """Frames in their order; whether those of libraries are so many that they are folded."""
    for library, group in groupby(calls, key=lambda call: not call.of_script and not call.ranks):
        together = list(group)
        yield library and len(together) > _FOLDED, together
