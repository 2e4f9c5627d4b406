"""``ddpdoctor bench``: how well this machine trains with more ranks, and what limits it."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ddpdoctor.bench.results import Results
    from ddpdoctor.bench.setting import Setting
    from ddpdoctor.host import Host

TIMEOUT = 600.0
"""Seconds; ten times what two CPUs need."""


class BenchFormat(str, Enum):
    """The formats of ``bench``."""

    TABLE = "table"
    JSON = "json"


def bench(
    nproc: Annotated[
        int | None,
        typer.Option(
            "--nproc", "--nproc-per-node", metavar="N", help="The most ranks. [default: GPUs, or 2]"
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="nccl or gloo. [default: nccl where every rank has a GPU]"),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds: fewer sizes, wider spread.")] = False,
    batch_size: Annotated[
        int | None, typer.Option(metavar="N", help="Samples of a rank. [default: 4, on GPUs 32]")
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(metavar="N", help="Of the model, a multiple of 4. [default: 256, on GPUs 1024]"),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Of the model. [default: 2, on GPUs 8]")
    ] = None,
    threads: Annotated[int, typer.Option(metavar="N", help="Of each rank, where CPUs compute.")] = 1,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit.")] = TIMEOUT,
    plot_to: Annotated[
        str | None, typer.Option("--plot", metavar="FILE", help="Draw it too: .png or .svg.")
    ] = None,
    format_: Annotated[BenchFormat, typer.Option("--format", help="How to write it.")] = BenchFormat.TABLE,
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write it to this file.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> int:
    """Measure scaling efficiency at 1 to N ranks, where a step goes, and the bandwidth of collectives.

    On this machine alone, with a model and data of its own; about half a minute on two CPUs.

    Exit status: 0 measured, 2 could not measure.
    """
    import json
    import sys

    from ddpdoctor.bench.report import to_json, to_text
    from ddpdoctor.bench.supervise import BenchFailed, run
    from ddpdoctor.cli.errors import INTERRUPTED, UsageError
    from ddpdoctor.cli.output import open_output, write_text
    from ddpdoctor.cli.signals import stopped_by_signals
    from ddpdoctor.host import Host
    from ddpdoctor.host.cgroup import read_cgroup
    from ddpdoctor.plan import Plan
    from ddpdoctor.progress import Progress

    host = Host(Plan())
    given = {"batch_size": batch_size, "width": width, "layers": layers, "threads": threads}
    setting = _setting(host, nproc, backend, quick, {name: n for name, n in given.items() if n is not None})
    picture, file = _picture(plot_to), open_output(output)
    cpus = read_cgroup(host.system).granted(host.system.cpus()[1])
    try:
        with stopped_by_signals(), Progress(quiet=quiet) as progress:
            results = run(setting, cpus, timeout, progress.stage)
    except KeyboardInterrupt:
        print("ddpdoctor: stopped; nothing of it is left running", file=sys.stderr)
        return INTERRUPTED
    except BenchFailed as failed:
        raise UsageError(str(failed)) from None
    text = to_text(results) if format_ is BenchFormat.TABLE else json.dumps(to_json(results), indent=2) + "\n"
    write_text(text, file)
    if picture:
        _draw(results, picture)
    return 0


def _setting(
    host: Host, nproc: int | None, backend: str | None, quick: bool, given: dict[str, int]
) -> Setting:
    from ddpdoctor.bench.setting import HEADS, default_setting
    from ddpdoctor.cli.errors import UsageError
    from ddpdoctor.cli.request import verify_nproc
    from ddpdoctor.host.gpus import default_backend, default_nproc, visible_gpus

    ranks = verify_nproc(default_nproc(host) if nproc is None else nproc, host)
    chosen = (backend or default_backend(host, ranks)).lower()
    if chosen not in ("gloo", "nccl"):
        raise UsageError(f"--backend {chosen} is neither gloo nor nccl")
    if chosen == "nccl" and len(visible_gpus(host)) < ranks:
        raise UsageError(f"--backend nccl needs a GPU for each of {ranks} ranks; --backend gloo needs none")
    for name, value in given.items():
        if value < 1:
            raise UsageError(f"--{name.replace('_', '-')} {value} is less than 1")
    if given.get("width", 0) % HEADS:
        raise UsageError(f"--width {given['width']} is no multiple of {HEADS}, the model's heads")
    return replace(default_setting(ranks, chosen, quick=quick), **given)  # type: ignore[arg-type]


def _picture(plot_to: str | None) -> Path | None:
    """Refuse a picture that cannot be drawn before anything is measured."""
    import importlib.util

    from ddpdoctor.cli.errors import UsageError
    from ddpdoctor.cli.output import open_output
    from ddpdoctor.cli.runs import MATPLOTLIB
    from ddpdoctor.picture import FORMATS
    from ddpdoctor.redact import quote

    if plot_to is None:
        return None
    if Path(plot_to).suffix.lower() not in FORMATS:
        raise UsageError(f"{quote(plot_to)} ends neither with .png nor with .svg")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(MATPLOTLIB)
    return open_output(plot_to)


def _draw(results: Results, picture: Path) -> None:
    from ddpdoctor.bench.plot import draw

    draw(results, picture)
