"""``ddpdoctor runs``: the folders of training runs as lists, tables and pictures."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddpdoctor.cli import run_options
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.report_output import open_output, verify_picture, write_out, write_text, writing
from ddpdoctor.redact import escape, quote
from ddpdoctor.runs import figures, tables
from ddpdoctor.runs.run_reader import Run, find_runs, is_run, read_run
from ddpdoctor.runs.summary import Summary, summarize_all
from ddpdoctor.text import did_you_mean


def run_list(options: run_options.ListOptions) -> int:
    """Write a line for each run."""
    runs = _chosen((), options)
    summaries = _summaries(runs, options)
    return _write(options, runs, summaries, tables.list_table(summaries))


def run_show(options: run_options.ShowOptions) -> int:
    """Write all of one run."""
    (run,) = runs = _chosen([options.name], options)
    summaries = _summaries(runs, options)
    extra = {"config": dict(tables.flat(run.config)), "folder": str(run.folder)}
    return _write(options, runs, summaries, tables.details(run, summaries[0]), [extra])


def run_compare(options: run_options.CompareOptions) -> int:
    """Write runs side by side, and draw them where that is asked for."""
    runs = _chosen(options.subjects, options)
    if len(runs) < 2:
        raise UsageError("compare requires at least two runs")
    if options.picture is not None:
        _draw(runs, run_options.Picture.CURVES, options.picture, options)
    summaries = _summaries(runs, options, options.baseline)
    apart = tables.differences(runs) or "all settings are the same\n"
    text = "\n".join((tables.list_table(summaries), tables.speed_table(summaries), apart))
    return _write(options, runs, summaries, text, [{"config": dict(tables.flat(run.config))} for run in runs])


def run_plot(options: run_options.PlotOptions) -> int:
    """Draw runs."""
    _draw(_chosen(options.names or (), options), options.what, options.output, options)
    write_out(f"{options.output}\n")
    return 0


def _draw(runs: list[Run], what: run_options.Picture, output: str, options: run_options.RunsOptions) -> None:
    from ddpdoctor.picture import draw

    path = verify_picture(output)
    curves = what is run_options.Picture.CURVES
    charts = figures.curves(runs) if curves else figures.scaling(_summaries(runs, options))
    if not charts:
        missing = "a logged step" if curves else "both a throughput and a number of ranks"
        raise UsageError(f"there is nothing to draw: no run has {missing}")
    with writing(path):
        draw(charts, path)


def _write(
    options: run_options.ListOptions,
    runs: Sequence[Run],
    summaries: list[Summary],
    text: str,
    extra: Sequence[Mapping[str, object]] | None = None,
) -> int:
    """Write the table in the format asked for; ``extra`` is what JSON says of each run beside the summary."""
    match options.format:
        case run_options.RunFormat.JSON:
            pairs = zip(summaries, extra or [{}] * len(summaries), strict=True)
            text = json.dumps([{**summary.to_json(), **more} for summary, more in pairs], indent=2) + "\n"
        case run_options.RunFormat.HTML:
            from ddpdoctor.report.html import sections_page

            names = ", ".join(run.name for run in runs[:8])
            text = sections_page("ddpdoctor runs", names, figures.sections(runs, summaries))
    write_text(text, open_output(options.output))
    return 0


def _summaries(
    runs: list[Run], options: run_options.RunsOptions, baseline: str | None = None
) -> list[Summary]:
    """The runs in numbers; any run of the folder may be the single process that they are compared with."""
    if baseline is not None:
        return summarize_all(runs, baseline=_chosen([baseline], options)[0])
    return summarize_all(runs, map(read_run, find_runs(Path(options.runs_folder))))


def _chosen(names: Sequence[str], options: run_options.RunsOptions) -> list[Run]:
    """The runs of these names; all of the folder where none is given. UsageError where there is none."""
    folder = options.runs_folder
    if not (there := find_runs(Path(folder))) and tuple(names) in ((), (run_options.LATEST,)):
        raise UsageError(f"no run in {quote(folder)}; `ddpdoctor train` creates one")
    paths = [_find(name, there, folder) for name in names] if names else there
    return [read_run(path) for path in dict.fromkeys(paths)]


def _find(name: str, there: list[Path], folder: str) -> Path:
    known = {path.name: path for path in there}
    if name == run_options.LATEST and there:
        return there[-1]
    if is_run(Path(name)):
        return Path(name)
    if name in known:
        return known[name]
    having = [path for path in there if name in path.name]
    paths = [path for path in having if path.name.startswith(name)] or having
    if len(paths) == 1:
        return paths[0]
    if paths:
        raise UsageError(f"{quote(name)} is ambiguous: {', '.join(escape(path.name) for path in paths[:5])}")
    hint = escape(did_you_mean(name, known, "`ddpdoctor runs list` lists them"))
    raise UsageError(f"no run in {quote(folder)} is called {quote(name)}; {hint}")
