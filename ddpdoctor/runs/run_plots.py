"""Runs as pictures. Needs matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from ddpdoctor.picture import COLOURS, INK, label, legend, new_figure, save, style
from ddpdoctor.runs.stored_run import Run
from ddpdoctor.runs.summary import Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_POINTS = 1000
"""Of a curve; more are averaged, since nobody sees them and an SVG has to carry them."""
NOISY = 40
"""Points of a curve above which its course is drawn as a mean, and the points themselves faintly."""
LINES = ("-", "--", ":", "-.")
_PANELS = (
    ("loss", "loss (circles: held-out data)"),
    ("lr", "learning rate"),
    ("grad_norm", "gradient norm"),
    ("samples_per_second", "samples/s, all ranks"),
)


def draw_curves(runs: Sequence[Run], path: Path) -> None:
    """Loss, learning rate, gradient norm and throughput by step; a panel for each that any run has.

    Raises:
        ValueError: no run has anything to draw.
    """
    shown = [(metric, title) for metric, title in _PANELS if any(run.series(metric) for run in runs)]
    if not shown:
        raise ValueError("no run has a logged step")
    figure, panels = new_figure(len(shown))
    for panel, (metric, title) in zip(panels, shown, strict=True):
        style(panel, title, "step")
        for run, colour, line in zip(runs, cycle(COLOURS), _lines(len(runs))):
            _draw(panel, run, metric, colour, line)
        panel.margins(y=0.08)
        if metric != "loss":
            panel.set_ylim(bottom=0)
    legend(figure, panels[0], runs)
    save(figure, path)


def _draw(panel: Axes, run: Run, metric: str, colour: str, line: str) -> None:
    points = thinned([(step, value) for step, value in run.series(metric) if math.isfinite(value)])
    if len(points) > NOISY and metric != "lr":
        panel.plot(*_columns(points), color=colour, linewidth=0.6, alpha=0.3)
        points = smoothed(points)
    # A single point has no line.
    mark = "o" if len(points) == 1 else ""
    panel.plot(
        *_columns(points), color=colour, linestyle=line, linewidth=1.6, marker=mark, label=label(run.name)
    )
    if metric == "loss":
        evaluations = thinned([(s, v) for s, v in run.series("evaluation_loss") if math.isfinite(v)])
        panel.plot(
            *_columns(evaluations),
            color=colour,
            linestyle="",
            marker="o",
            markersize=5,
            markerfacecolor="none",
        )


def draw_scaling(summaries: Sequence[Summary], path: Path) -> None:
    """Throughput by the number of ranks, and where a run of one process tells it, efficiency and perfect scaling.

    Raises:
        ValueError: no run has a throughput.
    """
    measured = sorted((s for s in summaries if s.ranks and s.samples_per_second), key=lambda s: s.ranks or 0)
    if not measured:
        raise ValueError("no run has both a throughput and a number of ranks")
    shares = [(s.ranks or 1, s.efficiency) for s in measured if s.efficiency]
    figure, panels = new_figure(2 if shares else 1)
    speed = panels[0]
    ranks = [summary.ranks or 1 for summary in measured]
    style(speed, "samples/s, all ranks", "ranks")
    speed.plot(
        ranks,
        [summary.samples_per_second or 0 for summary in measured],
        "o-",
        color=COLOURS[0],
        label="measured",
    )
    alone = next(((s.samples_per_second or 0) / (s.speed_up or 1) for s in measured if s.speed_up), None)
    if alone:
        speed.plot([1, max(ranks)], [alone, alone * max(ranks)], "--", color=INK, label="perfect scaling")
    for efficiency in panels[1:]:
        style(efficiency, "efficiency against one process", "ranks")
        efficiency.plot(*_columns(shares), "o-", color=COLOURS[1])
        efficiency.axhline(1, color=INK, linestyle="--", linewidth=1)
        efficiency.set_ylim(top=max(1.1, *(1.1 * share for _, share in shares)))
    for panel in panels:
        panel.set_ylim(bottom=0)
        panel.set_xticks(sorted(set(ranks)))
    legend(figure, speed, measured if alone else [])
    save(figure, path)


def thinned(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """At most :data:`MOST_POINTS`, each the mean of those that it stands for."""
    width = math.ceil(len(points) / MOST_POINTS) or 1
    groups = (points[start : start + width] for start in range(0, len(points), width))
    return [(fmean(step for step, _ in group), fmean(value for _, value in group)) for group in groups]


def smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Each value as the mean of those around it, of a twentieth of the curve; fewer at both ends."""
    half = len(points) // 40
    around = (points[max(0, at - half) : at + half + 1] for at in range(len(points)))
    return [(step, fmean(value for _, value in near)) for (step, _), near in zip(points, around, strict=True)]


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]


def _lines(count: int) -> list[str]:
    """A style of line for each run, so that more runs than colours are told apart."""
    return [LINES[number // len(COLOURS) % len(LINES)] for number in range(count)]
