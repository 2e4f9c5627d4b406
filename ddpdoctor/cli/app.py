"""The commands. Imports little, so that ``--help`` is instant."""

from typing import Annotated

import typer

from ddpdoctor import __version__
from ddpdoctor.cli import options, run_options
from ddpdoctor.cli.command import command

_HELP = "Diagnose distributed training with DistributedDataParallel: this machine and your script."
_RUNS = "List, show, compare and draw the runs of `ddpdoctor train`."

app = typer.Typer(
    name="ddpdoctor",
    help=_HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
runs = typer.Typer(help=_RUNS)
command_line_error: type[Exception] = typer.BadParameter.__mro__[2]
"""The base of all errors that typer raises for a command line; typer does not export it."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ddpdoctor {__version__}")
        raise typer.Exit()


@app.callback(help=_HELP)
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """What stands before a command."""


@runs.callback(invoke_without_command=True, help=_RUNS)
def print_commands(ctx: typer.Context) -> None:
    """Without a command, say which there are."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


for _name, _options in {
    "check": options.CheckOptions,
    "fix": options.FixOptions,
    "hang": options.HangOptions,
    "watch": options.WatchOptions,
    "top": options.TopOptions,
    "checks": options.ChecksOptions,
    "explain": options.ExplainOptions,
    "demo": options.DemoOptions,
    "clean": options.CleanOptions,
    "train": options.TrainOptions,
    "bench": options.BenchOptions,
}.items():
    command(app, _name, _options, _name)
for _name, _options in {
    "list": run_options.ListOptions,
    "show": run_options.ShowOptions,
    "compare": run_options.CompareOptions,
    "plot": run_options.PlotOptions,
}.items():
    command(runs, _name, _options, "runs")
app.add_typer(runs, name="runs")
