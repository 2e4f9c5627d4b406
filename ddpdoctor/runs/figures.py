"""Training runs as the sections of a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ddpdoctor.figures import Figure, Lines, Section, Series, Table
from ddpdoctor.redact import escape
from ddpdoctor.runs.run_plots import thinned
from ddpdoctor.runs.stored_run import Run
from ddpdoctor.runs.summary import Summary
from ddpdoctor.text import duration

_CURVES = (
    ("loss", "Loss", "training loss"),
    ("evaluation_loss", "Loss on held-out data", "evaluation loss"),
    ("lr", "Learning rate", "learning rate"),
    ("grad_norm", "Gradient norm", "norm"),
    ("samples_per_second", "Throughput of all ranks", "samples/s"),
)
_MOST_RUNS = 100


def sections(runs: Sequence[Run], summaries: Sequence[Summary]) -> tuple[Section, ...]:
    """A table of the runs, and their curves."""
    curves = tuple(_curves(runs))
    table = Section("Runs", figures=(_table(summaries[:_MOST_RUNS]),))
    return (table, Section("Curves", figures=curves)) if curves else (table,)


def _table(summaries: Sequence[Summary]) -> Table:
    header = (
        "run",
        "status",
        "ranks",
        "steps",
        "last loss",
        "evaluation loss",
        "samples/s",
        "efficiency",
        "time",
    )
    return Table("Runs", header, tuple(map(_row, summaries)))


def _row(summary: Summary) -> tuple[str, ...]:
    return (
        escape(summary.name),
        escape(summary.status),
        "" if summary.ranks is None else str(summary.ranks),
        str(summary.steps),
        _number(summary.last_loss),
        _number(summary.evaluation_loss),
        _number(summary.samples_per_second),
        "" if summary.efficiency is None else f"{summary.efficiency:.0%}",
        "" if summary.seconds is None else duration(summary.seconds),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _curves(runs: Sequence[Run]) -> Iterator[Figure]:
    for metric, title, unit in _CURVES:
        series = tuple(
            Series(escape(run.name), tuple(points))
            for run in runs[:_MOST_RUNS]
            if (
                points := thinned(
                    [(step, value) for step, value in run.series(metric) if math.isfinite(value)]
                )
            )
        )
        if series:
            yield Lines(title, "training step", unit, series)
