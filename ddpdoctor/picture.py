"""Pictures that are readable on a light and on a dark page. matplotlib is imported only here, where one is drawn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddpdoctor.redact import escape
from ddpdoctor.text import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg")
INK = "#7b838d"
"""Text and axes: as far from white as from black."""
COLOURS = ("#3e8ede", "#e07b39", "#2ca58d", "#d1495b", "#9b6fd4", "#b08d1e", "#c65fa8", "#5b9e3f")
"""Each is seen on white and on black, and told from its neighbours without red and green."""


def new_figure(panels: int) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side, two in a row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = min(2, panels)
    rows = math.ceil(panels / columns)
    figure = Figure(figsize=(4.8 * columns, 3.1 * rows), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, [figure.add_subplot(rows, columns, number + 1) for number in range(panels)]


def style(panel: Axes, title: str, below: str) -> None:
    """Axes in a colour that both pages show, without a box."""
    panel.set_facecolor("none")
    panel.set_title(title, color=INK, fontsize=10, loc="left")
    panel.set_xlabel(below, color=INK, fontsize=9)
    panel.tick_params(colors=INK, labelsize=8)
    panel.grid(color=INK, alpha=0.25, linewidth=0.6)
    for side, spine in panel.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(INK)


def legend(figure: Figure, panel: Axes, entries: Sequence[Any]) -> None:
    """Names under the figure, where there is more than one to tell apart."""
    if len(entries) < 2:
        return
    handles, labels = panel.get_legend_handles_labels()
    shown = figure.legend(
        handles, labels, loc="outside lower center", ncols=min(2, len(labels)), frameon=False, fontsize=8
    )
    for text in shown.get_texts():
        text.set_color(INK)


def save(figure: Figure, path: Path) -> None:
    """Write the picture, its background transparent.

    Raises:
        OSError: it cannot be written.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a name may have characters that no font here has
        figure.savefig(
            path, dpi=150, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None
        )


def label(name: str) -> str:
    """A name as matplotlib shows it as it stands: ``$`` begins a formula, ``_`` hides a line."""
    return " " * name.startswith("_") + shorten(escape(name), 60).replace("$", r"\$")
