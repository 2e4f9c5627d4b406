"""The commands. Imports little, so that ``--help`` is instant."""

from __future__ import annotations

from typing import Annotated

import typer

from ddpdoctor import __version__
from ddpdoctor.cli import runs
from ddpdoctor.cli.command import command
from ddpdoctor.cli.options import (
    BenchOptions,
    CheckOptions,
    CleanOptions,
    DemoOptions,
    ExplainOptions,
    FixOptions,
    HangOptions,
    PageFormat,
    TopOptions,
    TrainOptions,
    WatchOptions,
)

app = typer.Typer(
    name="ddpdoctor",
    help="Diagnose distributed training with DistributedDataParallel: this machine and your script.",
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
    """Diagnose distributed training with DistributedDataParallel: this machine and your script."""


@command(app, CheckOptions)
def check(options: CheckOptions) -> int:
    """Check this host, a live process group, and your training script.

    Without SCRIPT, a small bundled trainer runs. Options of this command go before SCRIPT; what stands after it is
    passed to the script.

    Exit status: 0 nothing above info, 1 findings, 2 could not examine.
    """
    from ddpdoctor.cli.check import run_check

    return run_check(options)


@command(app, FixOptions)
def fix(options: FixOptions) -> int:
    """Propose patches for findings, each verified on a changed copy.

    Nothing is written to your files without --apply.

    Exit status: that of the check.
    """
    from ddpdoctor.cli.fix import run_fix

    return run_fix(options)


@command(app, HangOptions, if_stopped="the job keeps running")
def hang(options: HangOptions) -> int:
    """Find out why a running job hangs, and which rank is the cause.

    The job needs no recorder and keeps running.

    Exit status: 0 nothing hangs, 1 a hang was found, 2 could not look.
    """
    from ddpdoctor.cli.hang import run_hang

    return run_hang(options)


@command(app, WatchOptions)
def watch(options: WatchOptions) -> int:
    """Run a whole job; if it hangs or crashes, report the cause.

    Ctrl-C and SIGTERM are passed on to the job; a second one ends it at once.

    Exit status: the job's own if that is not 0; else 0, or 1 if something was found. 1 after a hang.
    """
    from ddpdoctor.cli.watch import run_watch

    return run_watch(options)


@command(app, TopOptions, if_stopped="the job keeps running")
def top(options: TopOptions) -> int:
    """Show how a running job is doing, rank by rank: steps, waits, memory, the last checkpoint.

    Of a job under `ddpdoctor watch` or `check`, from what its ranks record; the job is not touched. On a terminal a
    screen until Ctrl-C, in a pipe a line every ten seconds.

    Exit status: 0 shown, 2 there is no such job.
    """
    from ddpdoctor.cli.top import run_top

    return run_top(options)


@app.command()
def checks(
    format_: Annotated[PageFormat, typer.Option("--format", help="Format of the list.")] = (
        PageFormat.TERMINAL
    ),
) -> None:
    """List every check: its code, what it verifies, where it looks."""
    from ddpdoctor.cli import check_pages

    check_pages.write(check_pages.list_checks(format_.value))


@command(app, ExplainOptions)
def explain(options: ExplainOptions) -> int:
    """Print the page of a check, or find the cause in a job's output.

    Exit status for output: 0 nothing above info, 1 findings, 2 could not read.
    """
    from ddpdoctor.cli import check_pages

    if check_pages.is_subject(options.subjects):
        return check_pages.write(check_pages.explain(options.subjects[0]))
    from ddpdoctor.cli.explain import run_explain

    return run_explain(options)


@command(app, DemoOptions)
def demo(options: DemoOptions) -> int:
    """Show a problem and its correction on a small script.

    The script is written into a folder, checked and explained; then the same with its correction.

    Exit status: 0 shown, 1 the check did not find what it should, 2 wrong usage.
    """
    from ddpdoctor.cli.demo import run_demo

    return run_demo(options)


@command(app, CleanOptions, if_stopped="some run folders may be left")
def clean(options: CleanOptions) -> int:
    """Remove the run folders that earlier checks kept.

    Only folders that ddpdoctor made in the temporary folder, and none in use. A later check removes them by itself
    when they are 14 days old.

    Exit status: 0 done, 2 wrong usage.
    """
    from ddpdoctor.cli.clean import run_clean

    return run_clean(options)


@command(app, TrainOptions)
def train(options: TrainOptions) -> int:
    """Train with the bundled trainer; the run is kept in runs/.

    Exit status: 0 trained, 1 the run failed, 2 wrong usage.
    """
    from ddpdoctor.cli.train import run_train

    return run_train(options)


@command(app, BenchOptions)
def bench(options: BenchOptions) -> int:
    """Measure scaling, the parts of a step, and bandwidth.

    On this machine alone, with its own model and data; about half a minute on two CPUs.

    Exit status: 0 measured, 2 could not measure.
    """
    from ddpdoctor.cli.bench import run_bench

    return run_bench(options)


app.add_typer(runs.app, name="runs")
