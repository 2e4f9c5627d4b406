"""``ddpdoctor watch``: its options."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from ddpdoctor.cli.formats import FailOn, ReportFormat
from ddpdoctor.cli.words import WORDS
from ddpdoctor.model import Level


class OnHang(str, Enum):
    """What to do with a job that stands still."""

    STOP = "stop"
    REPORT = "report"
    DUMP = "dump"


def watch(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar=WORDS, help="What to run: a script for torchrun, or a launch line as it is."),
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="The script is the name of a module, as for python -m.")
    ] = False,
    nproc: Annotated[
        int | None,
        typer.Option("--nproc", "--nproc-per-node", metavar="N", help="Ranks. [default: GPUs, or 2]"),
    ] = None,
    on_hang: Annotated[
        OnHang,
        typer.Option(
            help="stop: say why and end the job; report: say why and leave the job alone; "
            "dump: as stop, and keep what was seen in this folder."
        ),
    ] = OnHang.STOP,
    hang_after: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Without progress, while ranks wait. [default: from the run]"),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the run folder where nothing was found, too.")
    ] = False,
    select: Annotated[
        list[str] | None, typer.Option(metavar="CODES", help="Only these, as for check.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="CODES", help="Not these.")] = None,
    fail_on: Annotated[
        FailOn, typer.Option(help="The least level that makes the exit status of a job that ended well 1.")
    ] = FailOn.FAIL,
    format_: Annotated[ReportFormat, typer.Option("--format", help="How to write the report.")] = (
        ReportFormat.TERMINAL
    ),
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report to this file.")] = None,
    timeline: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write what each rank did when, for ui.perfetto.dev.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="List every check, with what it saw.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No word on stderr while it runs.")] = False,
) -> int:
    """Run a job at its full length, recorded; where it hangs or crashes, say why, and end it in order.

    Ctrl-C and SIGTERM are passed on to the job; a second one ends it at once.

    Exit status: the job's own where that is not 0; else 0, or 1 where something was found. 1 after a hang.
    """
    from ddpdoctor.cli.options import Options
    from ddpdoctor.cli.watching import run_watch
    from ddpdoctor.job.command import Kind

    options = Options(
        words=tuple(words or ()),
        kind=Kind.LINE if ctx.meta["is_line"] else Kind.MODULE if module else Kind.SCRIPT,
        nproc=nproc,
        full=True,
        hang_after=hang_after,
        keep=keep,
        select=tuple(select or ()),
        ignore=tuple(ignore or ()),
        fail_on=Level(fail_on.value),
        format=format_.value,
        output=output,
        timeline=timeline,
        verbose=verbose,
        quiet=quiet,
    )
    return run_watch(options, on_hang)
