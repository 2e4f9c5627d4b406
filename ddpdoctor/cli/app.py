"""The commands and their options. Imports little, so that ``--help`` is instant."""

from __future__ import annotations

from typing import Annotated

import typer

from ddpdoctor import __version__
from ddpdoctor.cli import bench, hang, runs, train, watch
from ddpdoctor.cli.formats import FailOn, PageFormat, ReportFormat
from ddpdoctor.cli.words import WORDS, WordsCommand
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


@app.command(cls=WordsCommand, context_settings={"allow_interspersed_args": False})
def check(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar=WORDS,
            help="What to examine: a script for torchrun, or a launch line as it stands. "
            "[default: the bundled trainer]",
        ),
    ] = None,
    module: Annotated[
        bool, typer.Option("-m", "--module", help="The script is the name of a module, as for python -m.")
    ] = False,
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
    standalone: Annotated[
        bool, typer.Option("--standalone", help="Let torchrun find a port, as it does where none is given.")
    ] = False,
    rdzv_backend: Annotated[str | None, typer.Option(metavar="NAME", help="torchrun's rendezvous.")] = None,
    rdzv_endpoint: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where it is.")] = None,
    rdzv_id: Annotated[str | None, typer.Option(metavar="ID", help="The job's name in it.")] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="nccl or gloo. [default: nccl where every rank has its own GPU, else gloo]"
        ),
    ] = None,
    batches: Annotated[
        int | None,
        typer.Option(metavar="N", help="Batches for each pass over a DataLoader. [default: 8]"),
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Run the script at its full length.")] = False,
    time_limit: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End the script then, and judge what it showed."),
    ] = None,
    hang_after: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Without progress, while ranks wait. [default: from the run]"),
    ] = None,
    rehearse: Annotated[
        bool, typer.Option("--rehearse", help="Run a script for GPUs and NCCL on the CPU, with gloo.")
    ] = False,
    rehearse_hosts: Annotated[
        int | None, typer.Option(metavar="N", help="Rehearse as if the ranks were on N hosts.")
    ] = None,
    exact: Annotated[
        bool,
        typer.Option("--exact", help="Run the script again in one process, and compare the first gradients."),
    ] = False,
    trace: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Judge an earlier run again, from the folder that was kept."),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the run folder where nothing was found, too.")
    ] = False,
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
        FailOn | None,
        typer.Option(help="The least level that makes the exit status 1. [default: warn]"),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", help="Time limit of the whole check. [default: 300; none with --full]"
        ),
    ] = None,
    format_: Annotated[ReportFormat, typer.Option("--format", help="How to write the report.")] = (
        ReportFormat.TERMINAL
    ),
    output: Annotated[str | None, typer.Option(metavar="FILE", help="Write the report to this file.")] = None,
    timeline: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write what each rank did when, for ui.perfetto.dev.")
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="List every check, with what it saw or why it was skipped."),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> int:
    """Examine this host, a live process group, and a training script: yours, or the bundled trainer.

    Options of this command stand before SCRIPT; all that follows it belongs to the script.

    Exit status: 0 nothing above info, 1 findings, 2 could not examine.
    """
    from ddpdoctor.cli.check import run_check
    from ddpdoctor.cli.options import Options
    from ddpdoctor.job.command import Kind

    return run_check(
        Options(
            words=tuple(words or ()),
            kind=Kind.LINE if ctx.meta["is_line"] else Kind.MODULE if module else Kind.SCRIPT,
            nproc=nproc,
            nnodes=nnodes,
            node_rank=node_rank,
            master_addr=master_addr,
            master_port=master_port,
            standalone=standalone,
            rdzv_backend=rdzv_backend,
            rdzv_endpoint=rdzv_endpoint,
            rdzv_id=rdzv_id,
            backend=backend,
            batches=batches,
            full=full,
            time_limit=time_limit,
            hang_after=hang_after,
            rehearse=rehearse,
            rehearse_hosts=rehearse_hosts,
            exact=exact,
            trace=trace,
            keep=keep,
            checkpoint_dir=checkpoint_dir,
            select=tuple(select or ()),
            ignore=tuple(ignore or ()),
            fail_on=Level(fail_on.value) if fail_on else None,
            timeout=timeout,
            format=format_.value,
            output=output,
            timeline=timeline,
            verbose=verbose,
            quiet=quiet,
        )
    )


app.command()(hang.hang)


app.command(cls=WordsCommand, context_settings={"allow_interspersed_args": False})(watch.watch)


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
    facts: Annotated[
        bool,
        typer.Option("--facts", help="Print what NCCL decided: versions, interfaces, transports, rings."),
    ] = False,
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
            facts=facts,
            fail_on=Level(fail_on.value),
            format=format_.value,
            output=output,
            verbose=verbose,
        )
    )


app.command()(train.train)
app.command()(bench.bench)
app.add_typer(runs.app, name="runs")
