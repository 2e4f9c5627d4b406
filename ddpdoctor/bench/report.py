"""A benchmark as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from ddpdoctor import __version__
from ddpdoctor.bench.results import Results, Scaling, Spread
from ddpdoctor.bench.setting import DEFAULT_BUCKET_MB
from ddpdoctor.bench.verdict import limit, plural_cpus
from ddpdoctor.text import ABSENT, duration, number, plural, share, size, table

WIDTH = 80
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
    yield f"weak scaling: {each} a rank\n{_scaling(results.weak)}"
    total = plural(results.setting.batch_size * results.setting.nproc, "sample")
    if results.setting.nproc > 1:
        yield f"strong scaling: {total} in all\n{_scaling(results.strong)}"
    exposed, other = "averaging that backward does not hide", "waiting for the slowest rank of each step"
    yield f"where a step goes, ms; exposed: {exposed};\nother: {other}\n{_splits(results)}"
    if results.buckets:
        yield f"bucket size, {plural(results.setting.nproc, 'rank')}\n{_buckets(results)}"
    if results.synced and results.unsynced:
        yield f"averaging and no_sync, {plural(results.setting.nproc, 'rank')}\n{_syncing(results)}"
    if results.collectives:
        yield f"collectives, {plural(results.setting.nproc, 'rank')}\n{_collectives(results)}"


def _scaling(rows: Sequence[Scaling]) -> str:
    header = ("ranks", "step", "middle half", "steps", "samples/s", "speed-up", "efficiency")
    return table(
        header,
        [
            (
                str(row.ranks),
                duration(row.step.median),
                _half(row.step),
                str(row.steps),
                number(row.samples_per_second),
                f"{row.speed_up:.2f} x",
                share(row.efficiency),
            )
            for row in rows
        ],
        "  ",
    )


def _splits(results: Results) -> str:
    names = ("data", "forward", "backward", "exposed", "optimizer", "other")
    rows = [
        (
            str(split.ranks),
            *(_part(getattr(split, name), split.total) for name in names),
            f"{split.total * 1e3:.1f}",
        )
        for split in results.splits
    ]
    return table(("ranks", *names, "step"), rows, "  ")


def _part(seconds: float, total: float) -> str:
    return f"{seconds * 1e3:.1f} {share(seconds / total):>5}" if seconds else ABSENT


def _buckets(results: Results) -> str:
    rows = [
        (
            f"{bucket.megabytes:g} MiB" + (" (default)" if bucket.megabytes == DEFAULT_BUCKET_MB else ""),
            duration(bucket.step.median),
            _half(bucket.step),
            duration(bucket.exposed),
        )
        for bucket in results.buckets
    ]
    return table(("bucket_cap_mb", "step", "middle half", "exposed"), rows, "  ")


def _syncing(results: Results) -> str:
    spreads = (("averaging", results.synced), ("no_sync", results.unsynced))
    rows = [(name, duration(spread.median), _half(spread)) for name, spread in spreads if spread]
    return table(("step with", "step", "middle half"), rows, "  ")


def _collectives(results: Results) -> str:
    header = ("operation", "size", "time", "middle half", "algorithm", "bus")
    rows = [
        (
            collective.operation,
            size(collective.bytes),
            duration(collective.seconds.median) if collective.seconds else ABSENT,
            _half(collective.seconds) if collective.seconds else "not in this backend",
            _bandwidth(collective.algorithm_bandwidth),
            _bandwidth(collective.bus_bandwidth),
        )
        for collective in results.collectives
    ]
    return table(header, rows, "  ")


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
        text = (
            f"other processes used {results.busy:.1f} CPUs before the benchmark, so its figures are too low."
        )
        yield _wrapped("note:", text)


def _wrapped(label: str, text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=f"{label:<7}", subsequent_indent=" " * 7) + "\n"
