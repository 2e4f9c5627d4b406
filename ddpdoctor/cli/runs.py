"""``ddpdoctor runs``: the folders of training runs as lists, tables and pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.text import did_you_mean

if TYPE_CHECKING:
    from ddpdoctor.runs.stored_run import Run
    from ddpdoctor.runs.summary import Summary

app = typer.Typer(help="List, show, compare and draw the runs of `ddpdoctor train`.")
FOLDER = "runs"
"""Where the trainer puts its runs."""
LATEST = "latest"


class RunFormat(str, Enum):
    """The formats of ``runs``."""

    ONE_LINE = "one-line"
    TABLE = "table"
    JSON = "json"
    HTML = "html"


class Picture(str, Enum):
    """What ``runs plot`` draws."""

    CURVES = "curves"
    SCALING = "scaling"


FolderOption = Annotated[str, typer.Option("--folder", metavar="FOLDER", help="The folder with the runs.")]
FormatOption = Annotated[RunFormat, typer.Option("--format", help="Format of the output.")]
OutputOption = Annotated[
    str | None, typer.Option("--output", metavar="FILE", help="Write to this file instead of stdout.")
]
BaselineOption = Annotated[
    str | None,
    typer.Option(
        metavar="RUN",
        help="The run that counts as 1 x. [default: the last of one process and the same work]",
    ),
]
SomeRuns = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN...]", help="Names, beginnings of names, folders, or 'latest'. [default: all]"
    ),
]


@app.callback(invoke_without_command=True)
def main(ctx: typer.Context) -> None:
    """List, show, compare and draw the runs of `ddpdoctor train`."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command("list")
def list_(
    folder: FolderOption = FOLDER,
    format_: FormatOption = RunFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """List the runs, oldest first."""
    from ddpdoctor.runs import tables

    runs = _chosen((), folder)
    summaries = _summaries(runs, folder)
    _write(runs, summaries, format_, tables.list_table(summaries), output=output)


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="A name, the beginning of one, a folder, or 'latest'.")] = LATEST,
    folder: FolderOption = FOLDER,
    format_: FormatOption = RunFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Show one run: its launch, what it reached, its configuration."""
    from ddpdoctor.runs import tables

    chosen = _chosen((run,), folder)
    summaries = _summaries(chosen, folder)
    extra = [{"config": dict(tables.flat(run.config)), "folder": str(run.folder)} for run in chosen]
    _write(chosen, summaries, format_, tables.details(chosen[0], summaries[0]), extra, output)


@app.command()
def summary(
    runs: SomeRuns = None,
    folder: FolderOption = FOLDER,
    baseline: BaselineOption = None,
    format_: FormatOption = RunFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Throughput, speed-up and efficiency against the run with one process."""
    from ddpdoctor.runs import tables

    chosen = _chosen(tuple(runs or ()), folder)
    summaries = _summaries(chosen, folder, baseline)
    _write(chosen, summaries, format_, tables.speed_table(summaries), output=output)


@app.command()
def compare(
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="At least two.")],
    folder: FolderOption = FOLDER,
    baseline: BaselineOption = None,
    plot_to: Annotated[
        str | None, typer.Option("--plot", metavar="FILE", help="Draw their curves too: .png or .svg.")
    ] = None,
    format_: FormatOption = RunFormat.TABLE,
    output: OutputOption = None,
) -> None:
    """Set runs side by side: what they reached, how fast, and the settings in which they differ."""
    from ddpdoctor.runs import tables

    chosen = _chosen(tuple(runs), folder)
    if len(chosen) < 2:
        raise UsageError("compare requires at least two runs")
    if plot_to is not None:
        _draw(chosen, Picture.CURVES, plot_to, folder)
    summaries = _summaries(chosen, folder, baseline)
    apart = tables.differences(chosen) or "all settings are the same\n"
    text = "\n".join((tables.list_table(summaries), tables.speed_table(summaries), apart))
    extra = [{"config": dict(tables.flat(run.config))} for run in chosen]
    _write(chosen, summaries, format_, text, extra, output)


@app.command()
def plot(
    runs: SomeRuns = None,
    folder: FolderOption = FOLDER,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The picture: .png or .svg.")
    ] = "runs.svg",
    what: Annotated[Picture, typer.Option(help="What to draw.")] = Picture.CURVES,
) -> None:
    """Draw loss, learning rate, gradient norm and throughput; or how throughput grows with the ranks.

    The background is transparent, and the picture is readable on a light and on a dark page.
    """
    _draw(_chosen(tuple(runs or ()), folder), what, output, folder)
    typer.echo(output)


@app.command()
def export(
    run: Annotated[str, typer.Argument(help="A name, the beginning of one, a folder, or 'latest'.")] = LATEST,
    folder: FolderOption = FOLDER,
    tensorboard: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where to write the event file. [default: in the run's folder]"),
    ] = None,
) -> None:
    """Write a run's metrics as an event file of TensorBoard."""
    from ddpdoctor.cli.report_output import writing
    from ddpdoctor.runs.tensorboard import NoTensorBoard
    from ddpdoctor.runs.tensorboard import export as export_run

    (chosen,) = _chosen((run,), folder)
    into = Path(tensorboard) if tensorboard else chosen.folder / "tensorboard"
    try:
        with writing(into, "--tensorboard"):
            written = export_run(chosen, into)
    except NoTensorBoard:
        raise UsageError("event files require TensorBoard: pip install tensorboard") from None
    typer.echo(f"{written} values in {into}")


def _draw(runs: list[Run], what: Picture, output: str, folder: str) -> None:
    from ddpdoctor.cli.report_output import verify_picture, writing
    from ddpdoctor.picture import draw
    from ddpdoctor.runs.figures import curves, scaling

    path = verify_picture(output)
    charts = curves(runs) if what is Picture.CURVES else scaling(_summaries(runs, folder))
    if not charts:
        missing = "a logged step" if what is Picture.CURVES else "both a throughput and a number of ranks"
        raise UsageError(f"there is nothing to draw: no run has {missing}")
    with writing(path):
        draw(charts, path)


def _write(
    runs: Sequence[Run],
    summaries: list[Summary],
    format_: RunFormat,
    text: str,
    extra: Sequence[Mapping[str, object]] | None = None,
    output: str | None = None,
) -> None:
    """Write in the format that was asked for.

    Args:
        text: the table.
        extra: what JSON says beside the summary, for each run.
        output: a file instead of stdout.
    """
    import json

    from ddpdoctor.cli.report_output import open_output, write_text
    from ddpdoctor.report.html import sections_page
    from ddpdoctor.runs import tables
    from ddpdoctor.runs.figures import sections

    if format_ is RunFormat.JSON:
        values = [
            {**summary.to_json(), **more}
            for summary, more in zip(summaries, extra or [{}] * len(summaries), strict=True)
        ]
        text = json.dumps(values, indent=2) + "\n"
    elif format_ is RunFormat.ONE_LINE:
        text = "".join(tables.one_line(summary) for summary in summaries)
    elif format_ is RunFormat.HTML:
        text = sections_page(
            "ddpdoctor runs", ", ".join(run.name for run in runs[:8]), sections(runs, summaries)
        )
    write_text(text, open_output(output))


def _summaries(runs: list[Run], folder: str, baseline: str | None = None) -> list[Summary]:
    """The runs in numbers; any run of the folder may be the single process that they are compared with."""
    from ddpdoctor.runs.run_reader import find_runs, read_run
    from ddpdoctor.runs.summary import summarize_all

    if baseline is not None:
        return summarize_all(runs, baseline=_chosen((baseline,), folder)[0])
    return summarize_all(runs, [read_run(path) for path in find_runs(Path(folder))])


def _chosen(names: tuple[str, ...], folder: str) -> list[Run]:
    """The runs of these names; all of the folder where none is given.

    Raises:
        UsageError: there is none.
    """
    from ddpdoctor.redact import quote
    from ddpdoctor.runs.run_reader import find_runs, read_run

    there = find_runs(Path(folder))
    if not there and names in ((), (LATEST,)):
        raise UsageError(f"no run in {quote(folder)}; `ddpdoctor train` creates one")
    paths = [_find(name, there, folder) for name in names] if names else there
    return [read_run(path) for path in dict.fromkeys(paths)]


def _find(name: str, there: list[Path], folder: str) -> Path:
    from ddpdoctor.redact import escape, quote
    from ddpdoctor.runs.run_reader import is_run

    known = {path.name: path for path in there}
    if name == LATEST and there:
        return there[-1]
    if is_run(Path(name)):
        return Path(name)
    if name in known:
        return known[name]
    paths = [path for path in there if path.name.startswith(name)] or [
        path for path in there if name in path.name
    ]
    if len(paths) == 1:
        return paths[0]
    if paths:
        raise UsageError(f"{quote(name)} is ambiguous: {', '.join(escape(path.name) for path in paths[:5])}")
    hint = escape(did_you_mean(name, known, "`ddpdoctor runs list` lists them"))
    raise UsageError(f"no run in {quote(folder)} is called {quote(name)}; {hint}")
