"""Runs as text: a list, one in detail, several side by side."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ddpdoctor.redact import escape, show_value
from ddpdoctor.runs.run_reader import Run
from ddpdoctor.runs.summary import Summary
from ddpdoctor.text import ABSENT, duration, number, plural, quote_command, share, shorten, size, table

LONGEST_NAME = 40
_NO_BASELINE = "no run of one process has the same model, so there is no baseline for a speed-up"


def list_table(summaries: Sequence[Summary]) -> str:
    """One line for each run."""
    names = ("run", "status", "ranks", "steps", "loss", "eval", "samples/s", "time")
    return table(names, rows(summaries, names))


def speed_table(summaries: Sequence[Summary]) -> str:
    """Throughput, speed-up and efficiency, fewest ranks first."""
    names = ("run", "ranks", "samples/s", "step", "speed-up", "efficiency")
    in_order = sorted(summaries, key=lambda summary: summary.ranks or 0)
    baselines = sorted({escape(summary.baseline) for summary in summaries if summary.baseline})
    against = f"against {', '.join(baselines)}" if baselines else _NO_BASELINE
    return f"{table(names, rows(in_order, names))}\n{against}\n"


def rows(summaries: Sequence[Summary], names: Sequence[str]) -> list[tuple[str, ...]]:
    """The columns of these names."""
    return [tuple(_COLUMNS[name](summary) for name in names) for summary in summaries]


def details(run: Run, summary: Summary) -> str:
    lines = [f"{_name(summary)}  {escape(summary.status)}", ""]
    lines += [f"  {name:<10}{text}" for name, text in _facts(run, summary) if text]
    lines += [f"  {'problem' if number == 0 else '':<10}{text}" for number, text in enumerate(run.problems)]
    settings = [f"    {escape(key)}: {value}" for key, value in flat(run.config)]
    return "\n".join([*lines, *(["", "  configuration", *settings] if settings else [])]) + "\n"


def _facts(run: Run, summary: Summary) -> Iterator[tuple[str, str]]:
    ranks = plural(summary.ranks, "rank") if summary.ranks is not None else ""
    torch = f"torch {summary.torch}" if summary.torch else ""
    yield "launch", escape(", ".join(filter(None, (ranks, summary.device, summary.backend, torch))))
    yield "started", run.started.strftime("%Y-%m-%d %H:%M:%S %Z") if run.started else ""
    yield "took", _duration(summary.seconds) if summary.seconds is not None else ""
    yield "steps", _progress(summary)
    yield "loss", _fell(summary)
    yield "evaluated", _evaluated(summary)
    yield "speed", _speed(summary)
    yield "memory", _memory(summary.memory_bytes)
    yield "saved", f"after {plural(len(run.checkpoints), 'step')}" if run.checkpoints else ""
    yield "command", escape(quote_command(run.described.command))


def _progress(summary: Summary) -> str:
    epochs = f" in {plural(summary.epochs, 'epoch')}" if summary.epochs else ""
    samples = f", {number(summary.samples)} samples" if summary.samples else ""
    return f"{_steps(summary)}{epochs}{samples}"


def _fell(summary: Summary) -> str:
    if summary.first_loss is None:
        return ""
    return f"{number(summary.first_loss)} at the first logged step, {number(summary.last_loss)} at the last"


def _evaluated(summary: Summary) -> str:
    if summary.evaluation_loss is None:
        return ""
    accuracy = summary.evaluation_accuracy
    beside = f", accuracy {accuracy:.1%}" if accuracy is not None and math.isfinite(accuracy) else ""
    return f"loss {number(summary.evaluation_loss)}{beside}, the lowest, at step {summary.evaluation_step}"


def _speed(summary: Summary) -> str:
    if summary.samples_per_second is None:
        return ""
    step = f", {_duration(summary.step_seconds)} a step" if summary.step_seconds else ""
    against = ""
    if summary.speed_up and summary.baseline != summary.name:
        against = f"; {summary.speed_up:.2f} times {escape(summary.baseline or '')}"
        against += f", efficiency {share(summary.efficiency)}" if summary.efficiency else ""
    return f"{number(summary.samples_per_second)} samples/s{step}{against}"


def flat(config: Mapping[str, Any], prefix: str = "", depth: int = 8) -> Iterator[tuple[str, str]]:
    """The settings by dotted keys, their values as they may be shown."""
    for key, value in config.items():
        if isinstance(value, dict) and value and depth:
            yield from flat(value, f"{prefix}{key}.", depth - 1)
        else:
            text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
            yield f"{prefix}{key}", show_value(str(key), text) if isinstance(value, str) else escape(text)


def differences(runs: Sequence[Run]) -> str:
    """The settings in which runs differ; empty where they agree."""
    settings = [dict(flat(run.config)) for run in runs]
    keys = dict.fromkeys(key for each in settings for key in each)
    rows = [
        (escape(key), *(shorten(each.get(key, ABSENT), LONGEST_NAME) for each in settings))
        for key in keys
        if len({each.get(key) for each in settings}) > 1
    ]
    header = ("setting", *(shorten(escape(run.name), LONGEST_NAME) for run in runs))
    return table(header, rows) if rows else ""


def _name(summary: Summary) -> str:
    return shorten(escape(summary.name), LONGEST_NAME)


def _steps(summary: Summary) -> str:
    unfinished = summary.planned_steps is not None and summary.steps < summary.planned_steps
    return f"{summary.steps} of {summary.planned_steps}" if unfinished else str(summary.steps)


def _duration(seconds: float | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return ABSENT
    if seconds < 120:
        return duration(seconds)
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}"


def _memory(count: float | None) -> str:
    return size(count) if count is not None and math.isfinite(count) else ""


_COLUMNS: Mapping[str, Callable[[Summary], str]] = {
    "run": _name,
    "status": lambda summary: escape(summary.status.partition(":")[0]),  # a list has no room for the reason
    "ranks": lambda summary: ABSENT if summary.ranks is None else str(summary.ranks),
    "steps": _steps,
    "loss": lambda summary: number(summary.last_loss),
    "eval": lambda summary: number(summary.evaluation_loss),
    "samples/s": lambda summary: number(summary.samples_per_second),
    "step": lambda summary: _duration(summary.step_seconds),
    "speed-up": lambda summary: f"{summary.speed_up:.2f} x" if summary.speed_up else ABSENT,
    "efficiency": lambda summary: share(summary.efficiency),
    "time": lambda summary: _duration(summary.seconds),
}
