"""The commands and their options. Imports little, so that ``--help`` is instant."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from ddpdoctor import __version__
from ddpdoctor.model import Level

app = typer.Typer(
    name="ddpdoctor",
    help="Say whether this machine and this script train correctly with DistributedDataParallel.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
command_line_error: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of all errors that typer raises for a command line; typer does not export it."""


class ReportFormat(str, Enum):
    """The formats of ``check``."""

    TERMINAL = "terminal"
    JSON = "json"
    JUNIT = "junit"
    SARIF = "sarif"
    GITHUB = "github"


class PageFormat(str, Enum):
    """The formats of ``checks``."""

    TERMINAL = "terminal"
    JSON = "json"


class FailOn(str, Enum):
    """The least level that makes the exit status 1."""

    FAIL = Level.FAIL.value
    WARN = Level.WARN.value


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ddpdoctor {__version__}")
        raise typer.Exit()


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Say whether this machine and this script train correctly with DistributedDataParallel."""


@app.command()
def check(
    nproc: Annotated[
        int | None,
        typer.Option(
            "--nproc", "--nproc-per-node", metavar="N", help="Ranks on this node. [default: its GPUs, or 2]"
        ),
    ] = None,
    nnodes: Annotated[int, typer.Option(metavar="N", help="Nodes; run the same command on each.")] = 1,
    node_rank: Annotated[
        int, typer.Option(metavar="N", help="This node's number, 0 for the one at --master-addr.")
    ] = 0,
    master_addr: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Where node 0 is. [default: 127.0.0.1 on one node]")
    ] = None,
    master_port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The rendezvous port. [default: MASTER_PORT, or 29500]")
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="nccl or gloo. [default: nccl where every rank has its own GPU, else gloo]"
        ),
    ] = None,
    checkpoint_dir: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="The folder that checkpoints will go to. [default: the temporary folder]"
        ),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CODES", help="Only these: codes, beginnings of codes, names, families, host, group, run."
        ),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="CODES", help="Not these.")] = None,
    fail_on: Annotated[
        FailOn, typer.Option(help="The least level that makes the exit status 1.")
    ] = FailOn.WARN,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time limit of the whole check, in seconds.")
    ] = 300.0,
    format_: Annotated[ReportFormat, typer.Option("--format", help="How to write the report.")] = (
        ReportFormat.TERMINAL
    ),
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report to this file.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show what passing checks measured.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> int:
    """Examine this host, a live process group and the bundled trainer under torchrun.

    Exit status: 0 nothing above info, 1 findings, 2 could not examine.
    """
    from ddpdoctor.cli.check import Options, run_check

    return run_check(
        Options(
            nproc=nproc,
            nnodes=nnodes,
            node_rank=node_rank,
            master_addr=master_addr,
            master_port=master_port,
            backend=backend,
            checkpoint_dir=checkpoint_dir,
            select=tuple(select or ()),
            ignore=tuple(ignore or ()),
            fail_on=Level(fail_on.value),
            timeout=timeout,
            format=format_.value,
            output=output,
            verbose=verbose,
            quiet=quiet,
        )
    )


@app.command()
def checks(
    format_: Annotated[
        PageFormat, typer.Option("--format", help="How to write the list.")
    ] = PageFormat.TERMINAL,
) -> None:
    """List every check: its code, what it finds, where it can look."""
    from ddpdoctor.cli import pages
    from ddpdoctor.cli.output import write_out

    write_out(pages.list_checks(format_.value) + "\n")


@app.command()
def explain(
    subjects: Annotated[
        list[str],
        typer.Argument(
            help="A check's code or name, or files and folders of a job's output, - for a pipe.",
            metavar="CODE | FILE...",
        ),
    ],
    fail_on: Annotated[
        FailOn, typer.Option(help="The least level that makes the exit status 1.")
    ] = FailOn.WARN,
    format_: Annotated[ReportFormat, typer.Option("--format", help="How to write the report.")] = (
        ReportFormat.TERMINAL
    ),
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report to this file.")] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Show the checks too that the output does not speak of.")
    ] = False,
) -> int:
    """Print a check's page, or name the root cause in a job's output.

    Exit status for output: 0 nothing above info, 1 findings, 2 could not read.
    """
    from ddpdoctor.cli import pages
    from ddpdoctor.cli.output import write_out

    if pages.is_subject(subjects):
        write_out(pages.explain(subjects[0]) + "\n")
        return 0
    from ddpdoctor.cli.explain import Options, run_explain

    return run_explain(
        Options(
            paths=tuple(subjects),
            fail_on=Level(fail_on.value),
            format=format_.value,
            output=output,
            verbose=verbose,
        )
    )
