"""A benchmark as a picture. Needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.bench.results import Results
from ddpdoctor.bench.setting import OPERATIONS
from ddpdoctor.picture import COLOURS, INK, new_figure, save, style
from ddpdoctor.text import size

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PARTS = ("data", "forward", "backward", "exposed", "optimizer")


def draw(results: Results, path: Path) -> None:
    """Efficiency, where a step goes, bucket sizes and bandwidth; the last two where there are several ranks.

    Raises:
        OSError: the file cannot be written.
    """
    figure, panels = new_figure(4 if results.buckets else 2)
    _efficiency(panels[0], results)
    _split(panels[1], results)
    if results.buckets:
        _buckets(panels[2], results)
        _bandwidth(panels[3], results)
    save(figure, path)


def _efficiency(panel: Axes, results: Results) -> None:
    style(panel, "efficiency", "ranks")
    for (name, rows), colour in zip(
        (("weak", results.weak), ("strong", results.strong)), COLOURS, strict=False
    ):
        panel.plot([r.ranks for r in rows], [r.efficiency for r in rows], "o-", color=colour, label=name)
    panel.axhline(1, color=INK, linestyle="--", linewidth=1)
    panel.set_ylim(bottom=0)
    panel.set_xticks([row.ranks for row in results.weak])
    _name_lines(panel)


def _split(panel: Axes, results: Results) -> None:
    style(panel, "where a step goes, in ms", "ranks")
    places = range(len(results.splits))
    below = [0.0] * len(results.splits)
    for part, colour in zip(PARTS, COLOURS, strict=False):
        heights = [getattr(split, part) * 1e3 for split in results.splits]
        name = "exposed communication" if part == "exposed" else part
        panel.bar(places, heights, 0.6, bottom=below, color=colour, label=name)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    panel.set_xticks(list(places), [str(split.ranks) for split in results.splits])
    panel.set_ylim(top=max(below) * 1.3)  # room for the names
    _name_lines(panel, columns=2)


def _buckets(panel: Axes, results: Results) -> None:
    style(panel, f"step by bucket size, {results.setting.nproc} ranks, in ms", "bucket_cap_mb")
    places = range(len(results.buckets))
    steps = [bucket.step for bucket in results.buckets]
    spread = [[(s.median - s.low) * 1e3 for s in steps], [(s.high - s.median) * 1e3 for s in steps]]
    panel.errorbar(
        places, [s.median * 1e3 for s in steps], spread, fmt="o-", color=COLOURS[0], ecolor=INK, capsize=3
    )
    panel.set_xticks(list(places), [f"{bucket.megabytes:g}" for bucket in results.buckets])
    panel.set_ylim(bottom=0)


def _bandwidth(panel: Axes, results: Results) -> None:
    style(panel, f"bus bandwidth, {results.setting.nproc} ranks, in GB/s", "size")
    for name, colour in zip(OPERATIONS, COLOURS, strict=False):
        rows = [r for r in results.collectives if r.operation == name and r.bus_bandwidth]
        speeds = [(row.bus_bandwidth or 0) / 1e9 for row in rows]
        panel.plot([row.bytes for row in rows], speeds, "o-", color=colour, label=name)
    sizes = results.setting.sizes
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(sizes, [size(length) for length in sizes])
    _name_lines(panel)


def _name_lines(panel: Axes, columns: int = 1) -> None:
    shown = panel.legend(frameon=False, fontsize=8, ncols=columns)
    for text in shown.get_texts():
        text.set_color(INK)
