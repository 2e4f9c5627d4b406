"""Training runs as the sections of a page, and as the charts of a picture."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from ddpdoctor.figures import Lines, Section, Series, Table
from ddpdoctor.redact import escape
from ddpdoctor.runs.run_reader import Run
from ddpdoctor.runs.summary import Summary
from ddpdoctor.runs.tables import rows

_CURVES = (
    ("loss", "Loss", "loss"),
    ("evaluation_loss", "Loss on held-out data", "loss"),
    ("lr", "Learning rate", "learning rate"),
    ("grad_norm", "Gradient norm", "gradient norm"),
    ("samples_per_second", "Throughput", "samples/s, all ranks"),
)
_MOST_RUNS = 100
MOST_POINTS = 1000
"""Of a curve; more are averaged, since nobody sees them and a page has to carry them."""
_COLUMNS = ("run", "status", "ranks", "steps", "loss", "eval", "samples/s", "efficiency", "time")


def sections(runs: Sequence[Run], summaries: Sequence[Summary]) -> tuple[Section, ...]:
    """A table of the runs, their curves, and how throughput grows with ranks."""
    table = Table("Results", _COLUMNS, tuple(rows(summaries[:_MOST_RUNS], _COLUMNS)))
    several = len({summary.ranks for summary in summaries}) > 1
    charts = (("Curves", curves(runs)), ("Scaling", scaling(summaries) if several else ()))
    drawn = (Section(title, figures=figures) for title, figures in charts if figures)
    return (Section("Runs", figures=(table,)), *drawn)


def curves(runs: Sequence[Run]) -> tuple[Lines, ...]:
    """Loss, learning rate, gradient norm and throughput by step, all over the same steps."""
    charts = list(_curves(runs[:_MOST_RUNS]))
    steps = [step for chart in charts for series in chart.series for step, _ in series.points]
    return tuple(replace(chart, x_range=(min(steps), max(steps))) for chart in charts if len(set(steps)) > 1)


def _curves(runs: Sequence[Run]) -> Iterator[Lines]:
    for metric, title, unit in _CURVES:
        known = {run.name: [point for point in run.series(metric) if math.isfinite(point[1])] for run in runs}
        series = tuple(Series(escape(name), tuple(thinned(it))) for name, it in known.items() if it)
        if series:
            yield Lines(title, "training step", unit, series, noisy=metric != "lr")


def scaling(summaries: Sequence[Summary]) -> tuple[Lines, ...]:
    """Throughput by the number of ranks and, where a run of one process tells it, efficiency and perfect scaling."""
    measured = sorted((s for s in summaries if s.ranks and s.samples_per_second), key=lambda s: s.ranks or 0)
    if not measured:
        return ()
    points = tuple((float(s.ranks or 1), s.samples_per_second or 0.0) for s in measured)
    series = [Series("measured", points)]
    if alone := next(((s.samples_per_second or 0) / s.speed_up for s in measured if s.speed_up), None):
        ranks = range(1, int(points[-1][0]) + 1)
        series.append(Series("perfect scaling", tuple((float(n), alone * n) for n in ranks)))
    speed = Lines("Throughput", "ranks", "samples/s, all ranks", tuple(series))
    shares = tuple((float(s.ranks or 1), s.efficiency) for s in measured if s.efficiency)
    against = "share of a single process's samples/s, by rank"
    return (speed, Lines("Efficiency", "ranks", against, (Series("", shares),))) if shares else (speed,)


def thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most :data:`MOST_POINTS`, each the mean of those that it stands for."""
    width = math.ceil(len(points) / MOST_POINTS) or 1
    groups = (points[start : start + width] for start in range(0, len(points), width))
    return [(fmean(step for step, _ in group), fmean(value for _, value in group)) for group in groups]
