"""A benchmark as the sections of a page."""

from collections.abc import Iterator

from ddpdoctor.bench.results import Results, Split, limit
from ddpdoctor.bench.setting import OPERATIONS
from ddpdoctor.figures import Figure, Lines, Row, Section, Series, Span, Strips, Tone, side_by_side
from ddpdoctor.text import duration, plural, size

_PARTS = (
    ("data", Tone.DATA, 1.0),
    ("forward", Tone.WORK, 1.0),
    ("backward", Tone.WORK, 0.7),
    ("optimizer", Tone.WORK, 0.4),
    ("exposed", Tone.COLLECTIVE, 1.0),
    ("other", Tone.WAIT, 1.0),
)
_LEGEND = (
    (Tone.DATA, "data"),
    (Tone.WORK, "forward, backward (paler), optimizer (palest)"),
    (Tone.COLLECTIVE, "averaging gradients that backward does not hide"),
    (Tone.WAIT, "waiting for the slowest rank of each step"),
)


def sections(results: Results) -> tuple[Section, ...]:
    """What limits training with more ranks, and the measurements behind it."""
    scaling: list[Figure] = [_efficiency(results), _steps(results)]
    communication: list[Figure] = [*_bandwidth(results)]
    first = Section("Scaling", limit(results), tuple(scaling))
    return (first, Section("Communication", figures=tuple(communication))) if communication else (first,)


def _efficiency(results: Results) -> Lines:
    points = tuple((float(row.ranks), row.efficiency) for row in results.weak)
    series = (Series("weak scaling", points),) if len(points) > 1 else ()
    return Lines("Efficiency", "ranks", "samples/s of a rank, as a share of a single rank's", series)


def _steps(results: Results) -> Strips:
    rows = tuple(Row(plural(it.ranks, "rank"), _spans(it), duration(it.total)) for it in results.splits)
    end = max(split.total for split in results.splits)
    return Strips("Where a training step goes", rows, end=end, unit="s", legend=_LEGEND)


def _spans(split: Split) -> tuple[Span, ...]:
    words = {"exposed": "averaging gradients", "other": "waiting"}
    lengths = ((getattr(split, name), words.get(name, name), tone, shade) for name, tone, shade in _PARTS)
    return side_by_side(
        *((length, tone, f"{word}: {duration(length)}", shade) for length, word, tone, shade in lengths)
    )


def _bandwidth(results: Results) -> Iterator[Lines]:
    sizes = sorted({row.bytes for row in results.collectives})
    points: dict[str, list[tuple[float, float]]] = {name: [] for name in OPERATIONS}
    for row in results.collectives:
        if row.bus_bandwidth:
            points[row.operation].append((float(sizes.index(row.bytes)), row.bus_bandwidth / 1e9))
    if known := tuple(Series(name, tuple(of_it)) for name, of_it in points.items() if of_it):
        title = f"Bus bandwidth of collectives, {plural(results.setting.nproc, 'rank')}"
        yield Lines(title, "bytes", "GB/s", known, tuple(map(size, sizes)), logarithmic=True)
