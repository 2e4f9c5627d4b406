"""Charts as a picture that is readable on a light and on a dark page. matplotlib is imported only here."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from ddpdoctor.redact import escape
from ddpdoctor.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

    from ddpdoctor.figures import Lines

FORMATS = (".png", ".svg")
INK = "#7b838d"
"""Text and axes: as far from white as from black."""
COLOURS = ("#3e8ede", "#e07b39", "#2ca58d", "#d1495b", "#9b6fd4", "#b08d1e", "#c65fa8", "#5b9e3f")
"""Each is seen on white and on black, and told from its neighbours without red and green."""
NOISY, _FEW = 40, 20
"""Points of a line above which its course is drawn as a mean, and the points faintly; up to which they are marked."""
_STYLES = ("-", "--", ":", "-.")


def draw(charts: Sequence[Lines], path: Path) -> None:
    """Charts, two in a row, on a transparent background. Raises OSError where the file cannot be written."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    columns, rows = min(2, len(charts)), math.ceil(len(charts) / 2)
    canvas = Canvas(figsize=(4.8 * columns, 3.1 * rows), layout="constrained")
    FigureCanvasAgg(canvas)
    for number, chart in enumerate(charts, 1):
        _lines(canvas.add_subplot(rows, columns, number), chart)
    _legend(canvas)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may have characters that no font here has
        metadata = {"Date": None} if path.suffix == ".svg" else None
        canvas.savefig(path, dpi=150, transparent=True, metadata=metadata)


def _lines(panel: Axes, figure: Lines) -> None:
    says_all = figure.y in ("", figure.title.lower())
    _style(panel, figure.title if says_all else f"{figure.title}: {figure.y}", figure.x)
    for number, series in enumerate(figure.series):
        points = [point for point in series.points if all(map(math.isfinite, point))]
        colour, line = COLOURS[number % len(COLOURS)], _STYLES[number // len(COLOURS) % len(_STYLES)]
        if len(points) > NOISY and figure.noisy:
            panel.plot(*_columns(points), color=colour, linewidth=0.6, alpha=0.3)
            points = _smoothed(points)
        # Two points tell nothing of what lies between them.
        (drawn,) = panel.plot(*_columns(points), line, color=colour, linewidth=1.6, markersize=4)
        if len(points) <= 2:
            drawn.set_linestyle("")
        drawn.set_marker("o" if len(points) <= _FEW else "")
        drawn.set_label(_label(series.name))
    if figure.logarithmic:
        panel.set_yscale("log")
    elif all(y >= 0 for series in figure.series for _, y in series.points):
        panel.set_ylim(bottom=0)
    places = sorted({x for series in figure.series for x, _ in series.points})
    if figure.x_names:
        panel.set_xticks(range(len(figure.x_names)), figure.x_names)
    elif len(places) <= _FEW // 2:
        panel.set_xticks(places)
    if figure.x_range:
        panel.set_xlim(*figure.x_range)


def _style(panel: Axes, title: str, below: str) -> None:
    """Axes in a colour that both pages show, without a box."""
    panel.set_facecolor("none")
    panel.set_title(title, color=INK, fontsize=10, loc="left")
    panel.set_xlabel(below, color=INK, fontsize=9)
    panel.tick_params(colors=INK, labelsize=8)
    panel.grid(color=INK, alpha=0.25, linewidth=0.6)
    for side, spine in panel.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)


def _legend(canvas: Canvas) -> None:
    """One legend under panels that name the same; else one in each that has something to tell apart."""
    named = [(panel, [*filter(None, panel.get_legend_handles_labels()[1])]) for panel in canvas.axes]
    several = [(panel, names) for panel, names in named if len(names) > 1]
    kinds = {tuple(names) for _, names in several}
    layout = {"frameon": False, "fontsize": 8, "labelcolor": INK}
    if len(kinds) == 1:
        handles, names = several[0][0].get_legend_handles_labels()
        canvas.legend(handles, names, loc="outside lower center", ncols=min(2, len(names)), **layout)
    else:
        for panel, names in several:
            columns = 1 if max(map(len, names)) > 30 else 2
            panel.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=columns, **layout)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each value as the mean of those around it, of a twentieth of the curve; fewer at both ends."""
    half = len(points) // 40
    around = (points[max(0, at - half) : at + half + 1] for at in range(len(points)))
    return [(step, fmean(value for _, value in near)) for (step, _), near in zip(points, around, strict=True)]


def _label(name: str) -> str:
    """A name as matplotlib shows it as it stands: ``$`` begins a formula, ``_`` hides a line."""
    return " " * name.startswith("_") + shorten(escape(name), 60).replace("$", r"\$")
