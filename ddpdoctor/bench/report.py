"""A benchmark as text and as JSON."""

import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from ddpdoctor import __version__
from ddpdoctor.bench.results import Results, Split, Spread, limit, plural_cpus
from ddpdoctor.text import ABSENT, duration, number, plural, share, size, table

_Columns: TypeAlias = Mapping[str, Callable[[Any], str]]
"""The cells of a table's rows, by the names of its columns."""
WIDTH = 80
_PARTS = ("data", "forward", "backward", "exposed", "optimizer", "other")
BUSY = 0.25
"""CPUs of others from which on a benchmark says so."""


def to_text(results: Results) -> str:
    """Tables, and the sentence at the end."""
    parts = [head(results), *_tables(results), *_notes(results), _wrapped("limit:", limit(results))]
    return "\n".join(parts)


def to_json(results: Results) -> dict[str, Any]:
    """All that was measured; seconds and bytes throughout."""
    return {
        "schema": 1,
        "tool": "ddpdoctor bench",
        "version": __version__,
        **results.to_json(),
        "limit": limit(results),
    }


def head(results: Results) -> str:
    """What was measured, and on what."""
    setting = results.setting
    first = f"{setting.backend}, torch {results.torch}, {plural_cpus(results.cpus)}"
    threads = f", {plural(setting.threads, 'thread')} a rank" if setting.backend != "nccl" else ""
    model = f"{number(results.parameters / 1e6)} M parameters, {size(results.gradient_bytes)} of gradients"
    return f"{first}{threads}\nmodel: {model}, samples of {setting.context} tokens\n"


def _tables(results: Results) -> Iterator[str]:
    each = plural(results.setting.batch_size, "sample")
    yield f"weak scaling: {each} a rank\n{_table(results.weak, _SCALING)}"
    exposed, other = "averaging that backward does not hide", "waiting for the slowest rank of each step"
    yield f"where a step goes, ms; exposed: {exposed};\nother: {other}\n{_table(results.splits, _SPLITS)}"
    if results.collectives:
        yield f"collectives, {plural(results.setting.nproc, 'rank')}\n{_table(results.collectives, _COLLECTIVES)}"


def _table(rows: Iterable[Any], columns: _Columns) -> str:
    return table([*columns], [[cell(row) for cell in columns.values()] for row in rows], "  ")


def _part(split: Split, name: str) -> str:
    seconds = float(getattr(split, name))
    return f"{seconds * 1e3:.1f} {share(seconds / split.total):>5}" if seconds else ABSENT


def _bandwidth(value: float | None) -> str:
    if value is None:
        return ABSENT
    return f"{number(value / 1e9)} GB/s" if value >= 1e8 else f"{number(value / 1e6)} MB/s"


def _half(spread: Spread) -> str:
    """The middle half in the unit of its upper end."""
    unit, factor = ("us", 1e6) if spread.high < 1e-3 else ("ms", 1e3) if spread.high < 1 else ("s", 1)
    return f"{number(spread.low * factor)}-{number(spread.high * factor)} {unit}"


def _notes(results: Results) -> Iterator[str]:
    if results.busy > BUSY:
        text = f"other processes used {results.busy:.1f} CPUs before the benchmark: its figures are too low."
        yield _wrapped("note:", text)


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=f"{label:<7}", subsequent_indent=" " * 7) + "\n"


_STEP: _Columns = {"step": lambda row: duration(row.step.median), "middle half": lambda row: _half(row.step)}
_SCALING: _Columns = {
    "ranks": lambda row: str(row.ranks),
    **_STEP,
    "steps": lambda row: str(row.steps),
    "samples/s": lambda row: number(row.samples_per_second),
    "speed-up": lambda row: f"{row.speed_up:.2f} x",
    "efficiency": lambda row: share(row.efficiency),
}
_SPLITS: _Columns = {
    "ranks": lambda row: str(row.ranks),
    **{name: partial(_part, name=name) for name in _PARTS},
    "step": lambda row: f"{row.total * 1e3:.1f}",
}
_COLLECTIVES: _Columns = {
    "operation": lambda row: str(row.operation),
    "size": lambda row: size(row.bytes),
    "time": lambda row: duration(row.seconds.median) if row.seconds else ABSENT,
    "middle half": lambda row: _half(row.seconds) if row.seconds else "not in this backend",
    "algorithm": lambda row: _bandwidth(row.algorithm_bandwidth),
    "bus": lambda row: _bandwidth(row.bus_bandwidth),
}
