"""Figures as HTML with small SVG inside: text stays text, of one size on a wide page and on a telephone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ddpdoctor.figures import (
    Figure,
    Lines,
    Row,
    Series,
    Span,
    StackFrame,
    Stacks,
    Strips,
    Table,
    Tone,
    WaitsFor,
)
from ddpdoctor.report.html.markup import Markup, tag, together
from ddpdoctor.text import duration, plural

WIDE = 1000
"""Units of a strip and of a chart in its own SVG, which is stretched to the room that there is."""
_THINNEST = 0.8
"""Of a span, so that a short one is seen."""
_DENSE = 12
"""Rows from which strips stand close together."""
MOST_TITLES = 4000
"""Spans that say what they are when pointed at; of more, a page would be too large."""
_MOST_COLUMNS, _MOST_COLOURED = 14, 8
_MOST_DOTS, _FEW = 40, 6
"""Points of a line that are marked; values of x that are all named on the axis."""
_FOLDED = 3
"""Frames of libraries in a row, from which they are folded."""
_NODE = 80
"""Pixels of a row of the wait-for graph, as style.css has it."""
_GUTTER = 56


def draw(figure: Figure) -> Markup:
    """A figure with its caption."""
    match figure:
        case Strips():
            body = _strips(figure)
        case Lines():
            body = _chart(figure)
        case WaitsFor():
            body = _waits(figure)
        case Stacks():
            body = _stacks(figure)
        case Table():
            body = _table(figure)
    note = tag("p", figure.note, class_="note") if figure.note else None
    unit = (
        tag("span", f" · {_unit(figure)[1]}", class_="unit")
        if isinstance(figure, Strips) and figure.unit
        else None
    )
    return tag("figure", tag("figcaption", figure.title, unit), body, note)


def _unit(figure: Strips) -> tuple[float, str]:
    """What makes numbers of a figure those of its axis, and their unit."""
    if figure.unit != "s":
        return 1.0, figure.unit
    return (1000.0, "milliseconds") if figure.end - figure.begin < 1 else (1.0, "seconds")


def _strips(figure: Strips) -> Markup:
    titled = sum(len(row.spans) for row in figure.rows) <= MOST_TITLES
    rows = [_row(row, figure, titled) for row in figure.rows]
    dense = " dense" if len(figure.rows) > _DENSE else ""
    return together(
        _legend(figure), tag("div", rows, _axis(figure), class_=f"strips{dense}", style=_narrow(figure))
    )


def _narrow(figure: Strips) -> str | None:
    """No wider than cells have to be that are told apart, beside their names and notes."""
    if not 0 < len(figure.columns) <= _MOST_COLUMNS:
        return None
    name = max((len(row.name) for row in figure.rows), default=0)
    note = max((len(row.note) for row in figure.rows), default=0)
    return f"max-width:{4 * len(figure.columns) + min(0.6 * name, 16) + min(0.55 * note, 18) + 2:.0f}rem"


def _row(row: Row, figure: Strips, titled: bool) -> Markup:
    marked = " marked" if row.marked else ""
    picture = tag(
        "svg",
        [_span(span, figure, titled) for span in row.spans],
        viewBox=f"0 0 {WIDE} 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=_in_words(row, figure),
    )
    name = tag("div", "▸ " if row.marked else "", row.name, class_=f"name{marked}")
    return tag("div", name, picture, tag("div", row.note, class_=f"value{marked}"), class_="row")


def _span(span: Span, figure: Strips, titled: bool) -> Markup:
    scale = WIDE / ((figure.end - figure.begin) or 1.0)
    begin, end = (span.begin - figure.begin) * scale, (span.end - figure.begin) * scale
    gap = 1.0 if figure.columns and len(figure.columns) <= 100 else 0.0
    shade = None if span.shade >= 1 else f"{max(span.shade, 0.04):.2g}"
    about = tag("title", span.about) if titled and span.about else None
    width = max(end - begin - gap, _THINNEST)
    return tag(
        "rect",
        about,
        class_=span.tone.value,
        x=f"{begin:.4g}",
        width=f"{width:.4g}",
        height=10,
        fill_opacity=shade,
    )


def _in_words(row: Row, figure: Strips) -> str:
    """The row for who does not see it: how much of what."""
    amounts: dict[Tone, float] = {}
    for span in row.spans:
        if span.shade >= 1:
            amounts[span.tone] = amounts.get(span.tone, 0.0) + span.end - span.begin
    words = dict(figure.legend)
    parts = [f"{words[tone]} {_amount(length, figure)}" for tone, length in amounts.items() if tone in words]
    return ", ".join([row.name, *parts, *([row.note] if row.note else [])])


def _amount(length: float, figure: Strips) -> str:
    if figure.columns:
        return f"in {plural(round(length), 'column')}"
    return duration(length) if figure.unit == "s" else f"{length:g} {figure.unit}"


def _legend(figure: Strips) -> Markup | None:
    items = [tag("li", tag("i", class_=tone.value), text) for tone, text in figure.legend]
    if figure.shades:
        tone = next((span.tone for row in figure.rows for span in row.spans), Tone.OTHER).value
        lightest, darkest = figure.shades
        items += [
            tag("li", tag("i", class_=tone, style="opacity:.08"), lightest),
            tag("li", tag("i", class_=tone), darkest),
        ]
    return tag("ul", items, class_="legend") if items else None


def _axis(figure: Strips) -> Markup:
    if figure.columns:
        every = math.ceil(len(figure.columns) / _MOST_COLUMNS)
        width = 100 / len(figure.columns)
        names = [
            tag("span", name, style=f"left:{(number + 0.5) * width:.2f}%")
            for number, name in enumerate(figure.columns)
            if number % every == 0
        ]
        return tag("div", names, class_="axis columns", aria_hidden="true")
    return tag("div", list(_ticks(figure)), class_="axis", aria_hidden="true")


def _ticks(figure: Strips) -> Iterator[Markup]:
    """Numbers at round places."""
    scale, _ = _unit(figure)
    for value in round_values(figure.begin * scale, figure.end * scale):
        at = (value / scale - figure.begin) / ((figure.end - figure.begin) or 1)
        yield tag("span", f"{value:g}", style=f"left:{at:.2%}", class_=_edge(at))


def round_values(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two others, evenly spaced."""
    if high <= low:
        return [low]
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _chart(figure: Lines) -> Markup:
    points = [point for series in figure.series for point in series.points if all(map(math.isfinite, point))]
    if figure.logarithmic:
        points = [(x, y) for x, y in points if y > 0]
    if not points:
        return tag("p", "nothing to draw", class_="note")
    frame = _Frame(figure, points)
    grid = [tag("path", d=f"M0 {frame.y(value):.5g}H{WIDE}", class_="grid") for value, _ in frame.y_ticks]
    lines = [frame.line(series, colour) for series, colour in _coloured(figure.series)]
    picture = tag(
        "svg",
        grid,
        lines,
        viewBox=f"0 0 {WIDE} {WIDE}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{figure.y} by {figure.x}",
    )
    left = [tag("span", text, style=f"top:{frame.y(value) / WIDE:.2%}") for value, text in frame.y_ticks]
    below = [
        tag("span", text, style=f"left:{frame.x(value) / WIDE:.2%}", class_=_edge(frame.x(value) / WIDE))
        for value, text in frame.x_ticks
    ]
    return together(
        tag("div", figure.y, class_="note"),
        tag(
            "div",
            tag("div", left, class_="y", aria_hidden="true"),
            picture,
            tag("div", below, class_="x", aria_hidden="true"),
            tag("div", figure.x, class_="title"),
            class_="chart",
        ),
        _names(figure.series) if len(figure.series) > 1 or figure.series[0].name else None,
    )


def _edge(share: float) -> str | None:
    return "last" if share > 0.95 else None


def _coloured(series: Sequence[Series]) -> list[tuple[Series, str]]:
    """Each line with its colour; of many, those that are marked stand out of the others."""
    if len(series) <= _MOST_COLOURED:
        return [(each, f"--s{number}") for number, each in enumerate(series)]
    return [
        (each, "--bad" if each.marked else "--other") for each in sorted(series, key=lambda each: each.marked)
    ]


def _names(series: Sequence[Series]) -> Markup:
    if len(series) > _MOST_COLOURED:
        marked = [each.name for each in series if each.marked]
        return tag(
            "p", f"{len(series)} lines{', in red ' + ', '.join(marked) if marked else ''}", class_="note"
        )
    items = [
        tag("li", tag("i", class_="line", style=f"background:var({colour})"), each.name)
        for each, colour in _coloured(series)
    ]
    return tag("ul", items, class_="legend")


class _Frame:
    """Where the points of a chart lie in it."""

    def __init__(self, figure: Lines, points: Sequence[tuple[float, float]]) -> None:
        self._logarithmic = figure.logarithmic
        self._x_values = sorted({x for x, _ in points})
        self._left, self._right = min(x for x, _ in points), max(x for x, _ in points)
        low, high = min(self._height(y) for _, y in points), max(self._height(y) for _, y in points)
        if not figure.logarithmic and low > 0 and low < 0.75 * high:
            low = 0.0  # lengths from zero are compared at a glance
        room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
        self._low, self._high = low - (room if low else 0.0), high + room
        self.y_ticks = self._y_ticks()
        self.x_ticks = self._x_ticks(figure.x_names)

    def _height(self, y: float) -> float:
        return math.log10(y) if self._logarithmic else y

    def x(self, value: float) -> float:
        """From the left."""
        return (
            WIDE * (value - self._left) / ((self._right - self._left) or 1.0)
            if self._right > self._left
            else WIDE / 2
        )

    def y(self, value: float) -> float:
        """From the top."""
        return WIDE * (self._high - self._height(value)) / (self._high - self._low)

    def _y_ticks(self) -> list[tuple[float, str]]:
        if self._logarithmic:
            powers = range(math.ceil(self._low), math.floor(self._high) + 1)
            values = [10.0**power for power in powers] or [10**self._low, 10**self._high]
        else:
            values = round_values(self._low, self._high, 5)
        return [(value, f"{value:.3g}") for value in values]

    def _x_ticks(self, names: Sequence[str]) -> list[tuple[float, str]]:
        if names:
            return [(float(number), name) for number, name in enumerate(names)]
        values = self._x_values if len(self._x_values) <= _FEW else round_values(self._left, self._right)
        return [(value, f"{value:g}") for value in values]

    def line(self, series: Series, colour: str) -> Markup:
        """A series; its points, too, where there are few."""
        known = [(x, y) for x, y in series.points if math.isfinite(y) and (y > 0 or not self._logarithmic)]
        if not known:
            return together()
        stroke = f"stroke:var({colour})"
        places = [f"{self.x(x):.4g} {self.y(y):.4g}" for x, y in known]
        path = tag("path", tag("title", series.name), d="M" + "L".join(places), style=stroke)
        dots = [
            tag(
                "path",
                tag("title", f"{series.name}: {x:g}, {y:.4g}"),
                class_="dot",
                d=f"M{at}h0",
                style=stroke,
            )
            for at, (x, y) in zip(places, known, strict=True)
        ]
        return together(path, dots if len(known) <= _MOST_DOTS else None)


def _waits(figure: WaitsFor) -> Markup:
    nodes = [
        tag(
            "li",
            tag(
                "div",
                tag("b", node.ranks, " · the cause" if node.culprit else ""),
                tag("br"),
                tag("small", node.state),
                class_="culprit" if node.culprit else None,
                title=node.state,
            ),
        )
        for node in figure.nodes
    ]
    height = _NODE * len(nodes)
    edges = [(number, target) for number, node in enumerate(figure.nodes) for target in node.waits_for]
    arrows = [_arrow(lane, begin, end) for lane, (begin, end) in enumerate(edges)]
    label = "; ".join(f"{figure.nodes[a].ranks} wait for {figure.nodes[b].ranks}" for a, b in edges)
    picture = tag(
        "svg",
        arrows,
        viewBox=f"0 0 {_GUTTER} {height}",
        height=height,
        role="img",
        aria_label=label or "nobody waits",
    )
    return tag("div", picture, tag("ol", nodes), class_="waits")


def _arrow(lane: int, begin: int, end: int) -> Markup:
    """From the middle of one box, left of all boxes, to that of another."""
    far = _GUTTER - 18 - 9 * (lane % 4)
    out, into = _NODE * (begin + 0.5) + 8, _NODE * (end + 0.5) - 8
    if begin > end:
        out, into = out - 16, into + 16
    bend = 10 if out < into else -10
    down = (
        f"H{far + 10}Q{far} {out:g} {far} {out + bend:g}V{into - bend:g}Q{far} {into:g} {far + 10} {into:g}"
    )
    course = f"M{_GUTTER} {out:g}{down}H{_GUTTER - 8}"
    head = f"M{_GUTTER} {into:g}l-10 -6v12z"
    return together(tag("path", d=course), tag("path", d=head, class_="head"))


def _stacks(figure: Stacks) -> Markup:
    parts: list[Markup] = []
    for folds, group in groupby(figure.calls, key=lambda call: not call.of_script and not call.ranks):
        calls = list(group)
        if folds and len(calls) > _FOLDED:
            summary = tag(
                "summary", f"{len(calls)} calls in libraries", style=f"--depth:{calls[0].depth - 1}"
            )
            parts.append(tag("details", summary, map(_call, calls)))
        else:
            parts += map(_call, calls)
    return tag("div", parts, class_="stacks")


def _call(call: StackFrame) -> Markup:
    who = tag("span", call.ranks, class_="who marked" if call.marked else "who") if call.ranks else None
    kind = "script" if call.of_script else "library"
    text = tag("span", call.text, class_=kind)
    return tag("div", who, tag("br") if who else None, text, class_="call", style=f"--depth:{call.depth - 1}")


def _table(figure: Table) -> Markup:
    head = tag("thead", tag("tr", [tag("th", name, scope="col") for name in figure.header]))
    body = tag("tbody", [_cells(row) for row in figure.rows])
    return tag(
        "div", tag("table", head, body), class_="scroll", tabindex=0, role="region", aria_label=figure.title
    )


def _cells(row: Iterable[str]) -> Markup:
    return tag("tr", [tag("td", text, class_="wrap") for text in row])
