"""``ddpdoctor hang``: its options. Imports little."""

from __future__ import annotations

from typing import Annotated

import typer

from ddpdoctor.cli.formats import ReportFormat


def hang(
    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PID... | FOLDER...]",
            help="A launcher or any rank of a job; or what --dump kept. [default: the job on this host]",
        ),
    ] = None,
    dump: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Keep what was seen, to be judged again.")
    ] = None,
    flight_recorder: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Judge the dumps of PyTorch's flight recorder.")
    ] = None,
    format_: Annotated[ReportFormat, typer.Option("--format", help="How to write the report.")] = (
        ReportFormat.TERMINAL
    ),
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report to this file.")] = None,
    timeline: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write what each rank did when, for ui.perfetto.dev.")
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Tell where each rank is, though nothing hangs.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> int:
    """Say who waits for whom in a job that is stuck, and who is to blame. The job goes on as it was.

    Exit status: 0 nothing hangs, 1 a hang was found, 2 could not look.
    """
    from ddpdoctor.cli.hang_run import Options, run_hang

    return run_hang(
        Options(tuple(subjects or ()), dump, flight_recorder, format_.value, output, verbose, quiet, timeline)
    )
