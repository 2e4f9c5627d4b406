"""The options of the commands, each declared once: its name, its meaning, its bounds, its default.

A command takes one value of a dataclass made of the groups that it needs; ``command.py`` makes typer's command of it,
with the option of typer that stands in the metadata of each field.
"""

# ruff: noqa: RUF009 - the functions that are called in dataclasses return fields

from __future__ import annotations

import math
import re
from dataclasses import MISSING, dataclass, field
from enum import Enum
from typing import Any

import typer

from ddpdoctor.model import Level
from ddpdoctor.report import Format

LONGEST = 7 * 24 * 3600.0
"""Seconds; nobody waits longer, and torch cannot count far more."""
SHORTEST_HANG = 2.0
"""Seconds; it takes two looks, a second apart, to tell who works."""
WORDS = "[SCRIPT ARGS... | -m MODULE ARGS... | -- COMMAND LINE]"
LINE = "--"
"""The word before a whole command line."""
STDOUT = "-"
"""The output file that is stdout."""


class OnHang(str, Enum):
    """What to do with a job that hangs."""

    STOP = "stop"
    REPORT = "report"
    DUMP = "dump"


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


class PageFormat(str, Enum):
    """The formats of ``checks``."""

    TERMINAL = "terminal"
    JSON = "json"


class BenchFormat(str, Enum):
    """The formats of ``bench``."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


OPTION = "typer"
"""The key of a field's metadata."""


def _field(default: Any, option: Any) -> Any:
    return field(default=default, metadata={OPTION: option})


def _number(
    default: float | None,
    metavar: str,
    help: str,
    *names: str,
    least: float,
    most: float = math.inf,
    kind: type[int] | type[float] = int,
) -> Any:
    """An option that is a number between bounds."""

    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not a number") from None
        if least <= value <= most:
            return value
        bounds = f"not between {least:g} and {most:g}" if math.isfinite(most) else f"less than {least:g}"
        raise typer.BadParameter(f"{text} is {bounds}")

    return _field(default, typer.Option(*names, metavar=metavar, help=help, parser=parse))


def _seconds(default: float | None, help: str, least: float = 0.001) -> Any:
    return _number(default, "SECONDS", help, least=least, most=LONGEST, kind=float)


def _count(default: int | None, help: str, *names: str) -> Any:
    return _number(default, "N", help, *names, least=1)


def _text(metavar: str, help: str, *names: str, default: str | None = None, completion: Any = None) -> Any:
    return _field(default, typer.Option(*names, metavar=metavar, help=help, autocompletion=completion))


def _choice(default: Enum, help: str) -> Any:
    return _field(default, typer.Option(help=help))


def _flag(help: str, *names: str) -> Any:
    return _field(False, typer.Option(*names, help=help))


def _words(metavar: str, help: str, default: Any = None, completion: Any = None) -> Any:
    return _field(default, typer.Argument(metavar=metavar, help=help, autocompletion=completion))


def _codes(incomplete: str) -> list[tuple[str, str]]:
    """For the shell: the codes and names of checks that begin like the last of a list, and what is so where nothing
    is wrong."""
    from ddpdoctor import registry

    before, comma, last = incomplete.rpartition(",")
    checks = registry.all_checks() if last else ()  # of nothing, the shell completes files
    names = [(name, check.title) for check in checks for name in (check.code, check.name)]
    return [(before + comma + name, title) for name, title in names if name.lower().startswith(last.lower())]


def _configs(incomplete: str) -> list[str]:
    """For the shell: the bundled configurations."""
    from ddpdoctor.job.trainer import bundled_configs

    return [name for name in bundled_configs() if name.startswith(incomplete)]


def _level(default: Level | None, help: str) -> Any:
    """An option that is a level which may make the exit status 1."""

    def parse(text: str) -> Level:
        if text not in (Level.FAIL.value, Level.WARN.value):
            raise typer.BadParameter(f"{text!r} is neither 'fail' nor 'warn'")
        return Level(text)

    return _field(default, typer.Option(metavar="[fail|warn]", parser=parse, help=help, show_default=False))


def _age(default: str, help: str) -> Any:
    """An option that is a length of time with its unit."""

    def parse(text: str) -> float:
        match = re.fullmatch(r"(\d{1,6})([smhd])|0", text)
        if match is None:
            raise typer.BadParameter(f"{text!r} is not an age such as 30m, 12h or 7d")
        return int(match[1] or 0) * {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}[match[2] or "s"]

    return _field(default, typer.Option(metavar="AGE", parser=parse, help=help, show_default=False))


@dataclass(frozen=True)
class NodeCount:
    """``--nnodes``: how many nodes."""

    least: int = 1
    most: int = 1

    @property
    def spare(self) -> int:
        """How many need not come."""
        return self.most - self.least

    @classmethod
    def parse(cls, text: str) -> NodeCount:
        """``3``, or as torchrun has it for an elastic job, ``2:3``.

        Raises:
            ValueError: it is neither.
        """
        least, colon, most = text.partition(":")
        count = cls(int(least), int(most if colon else least))
        if not 1 <= count.least <= count.most:
            raise ValueError
        return count


def _nodes() -> Any:
    def parse(text: str) -> NodeCount:
        try:
            return NodeCount.parse(text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is neither a number of nodes nor MIN:MAX") from None

    help = "Nodes, each with this command; MIN:MAX if elastic. [default: 1]"
    option = typer.Option("--nnodes", metavar="N", parser=parse, help=help, show_default=False)
    return _field(None, option)


def _nproc() -> Any:
    help = "Ranks on this node. [default: from the configuration, if any; else one per GPU, or 2]"
    return _count(None, help, "--nproc-per-node", "--nproc")


def _backend() -> Any:
    return _text("NAME", "nccl or gloo. [default: nccl with GPUs]")


def _fail_on() -> Any:
    return _level(None, "What makes the exit status 1. [default: warn]")


def _quiet() -> Any:
    return _flag("No progress on stderr.", "--quiet", "-q")


def _output() -> Any:
    return _text("FILE", "Write to this file instead of stdout.")


def _formats() -> Any:
    return _field(None, typer.Option(help="May be repeated. [default: terminal]"))


def _outputs() -> Any:
    return _text("FILE", "File for the --format before it; - is stdout.")


def _timeline() -> Any:
    return _text("FILE", "What each rank did when, for ui.perfetto.dev.")


@dataclass(frozen=True)
class JobOptions:
    """What is run."""

    words: list[str] | None = _words(
        WORDS,
        "A script or a module, started by torchrun; or a whole launch line, as in -- torchrun train.py.",
    )
    """As they were given, with the ``--`` of a command line."""
    module: bool = _flag("SCRIPT is a module, as for python -m.", "--module", "-m")


@dataclass(frozen=True)
class LaunchOptions:
    """torchrun's, with its names and meanings."""

    nproc: int | None = _nproc()
    nodes: NodeCount | None = _nodes()
    node_rank: int | None = _number(None, "N", "This node's. [default: 0; check gives numbers]", least=0)
    master_addr: str | None = _text("ADDRESS", "Address of node 0. [default: 127.0.0.1]")
    master_port: int | None = _number(
        None,
        "PORT",
        "Port of node 0. [default: MASTER_PORT or 29500; free on one node]",
        least=1,
        most=65535,
    )
    standalone: bool = _flag("Single node, on a free port.", "--standalone")
    max_restarts: int | None = _number(
        None, "N", "Restarts of the ranks after a failure. [default: 0]", least=0
    )
    rdzv_backend: str | None = _text("NAME", "Rendezvous backend, as c10d.")
    rdzv_endpoint: str | None = _text("HOST:PORT", "Rendezvous endpoint.")
    rdzv_id: str | None = _text("ID", "Id of the job at the rendezvous.")
    rdzv_conf: str | None = _text("KEY=VALUE,...", "More rendezvous configuration.")

    @property
    def nnodes(self) -> int:
        """The most nodes."""
        return self.nodes.most if self.nodes else 1

    @property
    def rendezvous(self) -> tuple[tuple[str, str], ...]:
        """What is given of torchrun's ``--rdzv-NAME VALUE``."""
        names = ("backend", "endpoint", "id", "conf")
        values = ((name, getattr(self, f"rdzv_{name}")) for name in names)
        return tuple((name, value) for name, value in values if value is not None)


@dataclass(frozen=True)
class SelectionOptions:
    """Which checks are asked, and what counts."""

    select: list[str] | None = _text(
        "CODES", "Only these: codes, names, families, host, group, run.", completion=_codes
    )
    ignore: list[str] | None = _text("CODES", "Not these checks.", completion=_codes)


@dataclass(frozen=True)
class ReportOptions:
    """How and where the report is written."""

    format: list[Format] | None = _formats()
    output: list[str] | None = _outputs()
    """One for each format, in their order; ``command.py`` sees to that."""
    verbose: bool = _flag("Also show what passed or was skipped.", "--verbose", "-v")

    @property
    def reports(self) -> tuple[tuple[Format, str], ...]:
        """Each report to write: its format and its file."""
        formats = self.format or [Format.TERMINAL]
        outputs = [*(self.output or ()), *[STDOUT] * len(formats)]
        return tuple(zip(formats, outputs, strict=False))

    @property
    def wants_page(self) -> bool:
        """Whether one of the reports is a page, with pictures."""
        return Format.HTML in (self.format or ())


@dataclass(frozen=True)
class RunOptions(ReportOptions, SelectionOptions, LaunchOptions, JobOptions):
    """What ``check`` and ``watch`` share."""

    fail_on: Level | None = _fail_on()
    hang_after: float | None = _seconds(
        None, "No progress for so long is a hang. [default: varies]", SHORTEST_HANG
    )
    keep: bool = _flag("Keep the run folder even if nothing was found.", "--keep")
    timeline: str | None = _timeline()
    quiet: bool = _quiet()


@dataclass(frozen=True)
class PatchOptions:
    """What is done with patches."""

    apply: bool = _flag("Write the verified patches into your files.", "--apply")
    diff: str | None = _text("FILE", "Write the verified patches here, for git apply.")
    force: bool = _flag("With --apply: also into files with uncommitted changes.", "--force")


@dataclass(frozen=True)
class CheckOptions(PatchOptions, RunOptions):
    """Check this host, a live process group, and your training script.

    Without SCRIPT, a small bundled trainer runs. Options of this command go before SCRIPT; what stands after it is
    passed to the script.

    Exit status: 0 nothing above info, 1 findings, 2 could not examine.
    """

    backend: str | None = _backend()
    budget: float | None = _seconds(
        None, "Training that a script may take; a longer one is cut short. [default: 30]"
    )
    batches: int | None = _count(None, "Cut each pass over a DataLoader after N batches instead.")
    full: bool = _flag("Run the script at its full length.", "--full")
    time_limit: float | None = _seconds(None, "End the script after this time, and judge what it did.")
    rehearse: bool = _flag("Run a script for GPUs and NCCL on the CPU.", "--rehearse")
    rehearse_hosts: int | None = _count(None, "Rehearse as if the ranks were on N hosts.")
    world_size: int | None = _number(
        None,
        "N",
        "Rehearse a job of N ranks, a few of them real.",
        least=2,
        most=100_000,
    )
    ranks: str | None = _text("RANKS", "The real ones, as 0,8-11. [default: both ends]")
    exact: bool = _flag("Compare gradients with those of one process.", "--exact")
    no_fork: bool = _flag("Start the bundled trainer by torchrun.", "--no-fork")
    trace: str | None = _text("FOLDER...", "Judge a run again, from its kept folders.")
    compare: str | None = _text("FOLDER", "Compare with an earlier run, from its kept folder.")
    checkpoint_dir: str | None = _text("FOLDER", "Where checkpoints go. [default: /tmp]")
    timeout: float | None = _seconds(None, "Of the whole check. [default: 300; none with --full]")
    keep_files: bool = _flag("Keep the files that the script writes.", "--keep-files")
    no_run: bool = _flag("Only read the source of scripts; nothing is run.", "--no-run")
    no_unreached: bool = _flag("Do not judge lines that the run did not reach.", "--no-unreached")
    fix: bool = _flag("Propose patches, each verified on a changed copy.", "--fix")

    @property
    def imaginary_hosts(self) -> int:
        """Hosts of a rehearsal; 0 where devices are real."""
        return int(self.rehearse) if self.rehearse_hosts is None else self.rehearse_hosts


@dataclass(frozen=True, kw_only=True)
class FixOptions(ReportOptions, SelectionOptions, PatchOptions):
    """Propose patches for findings, each verified on a changed copy.

    Nothing is written to your files without --apply.

    Exit status: that of the check.
    """

    run_folder: str = _words("FOLDER", "The folder of a run that check kept.", MISSING)
    fail_on: Level | None = _fail_on()
    timeout: float | None = _seconds(None, "Time limit of each run of a changed copy. [default: 300]")
    quiet: bool = _quiet()


@dataclass(frozen=True)
class WatchOptions(RunOptions):
    """Run a whole job; if it hangs or crashes, report the cause.

    Ctrl-C and SIGTERM are passed on to the job; a second one ends it at once.

    Exit status: the job's own if that is not 0; else 0, or 1 if something was found. 1 after a hang.
    """

    fail_on: Level | None = _level(
        Level.FAIL,
        "Lowest level of a finding that makes the exit status of a job that succeeded 1. [default: fail]",
    )
    on_hang: OnHang = _choice(
        OnHang.STOP,
        "stop: report the cause and end the job; report: report the cause and leave the job alone; "
        "dump: as stop, and keep the run folder here.",
    )
    metrics: str | None = _text(
        "[HOST]:PORT | FILE", "Offer steps, waits and memory of each rank to Prometheus there, or write them."
    )


@dataclass(frozen=True)
class TopOptions:
    """Show how a running job is doing, rank by rank: steps, waits, memory, the last checkpoint.

    Of a job under `ddpdoctor watch` or `check`, from what its ranks record; the job is not touched. On a terminal a
    screen until Ctrl-C, in a pipe a line every ten seconds.

    Exit status: 0 shown, 2 there is no such job.
    """

    run: str | None = _words(
        "[RUN]",
        "The folder of a run. [default: the last that was started in this directory, or on this host]",
    )
    once: bool = _flag("Print all ranks once, and exit.", "--once")
    every: float | None = _seconds(None, "Between two looks. [default: 1; in a pipe 10]")


@dataclass(frozen=True)
class HangOptions(ReportOptions):
    """Find out why a running job hangs, and which rank is the cause.

    The job needs no recorder and keeps running.

    Exit status: 0 nothing hangs, 1 a hang was found, 2 could not look.
    """

    subjects: list[str] | None = _words(
        "[PID... | FOLDER...]",
        "The launcher or any rank of a job; or folders that --dump wrote. [default: the job on this host]",
    )
    dump: str | None = _text("FOLDER", "Keep what was seen in this folder, to judge it again later.")
    flight_recorder: str | None = _text("FOLDER", "Judge the dumps of PyTorch's flight recorder.")
    timeline: str | None = _timeline()
    quiet: bool = _quiet()


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ReportOptions):
    """Print the page of a check, or find the cause in a job's output.

    Exit status for output: 0 nothing above info, 1 findings, 2 could not read.
    """

    subjects: list[str] = _words(
        "CODE | FILE...",
        "The code or name of a check; or files and folders with the output of a job, - for stdin.",
        MISSING,
        _codes,
    )
    facts: bool = _flag("Print what NCCL logged: versions, interfaces, transports, rings.", "--facts")
    fail_on: Level | None = _fail_on()


@dataclass(frozen=True)
class ChecksOptions:
    """List every check: its code, what it verifies, where it looks."""

    format: PageFormat = _choice(PageFormat.TERMINAL, "Format of the list.")


@dataclass(frozen=True)
class DemoOptions:
    """Show a problem and its correction on a small script.

    The script is written into a folder, checked and explained; then the same with its correction.

    Exit status: 0 shown, 1 the check did not find what it should, 2 wrong usage.
    """

    subject: str | None = _words("[CODE]", "The code or name of the check to show.", completion=_codes)
    list_demos: bool = _flag("List the checks that have a demo.", "--list")
    folder: str = _text("FOLDER", "Write the scripts to this folder.", default="ddpdoctor-demo")
    quiet: bool = _quiet()


@dataclass(frozen=True)
class CleanOptions:
    """Remove the run folders that earlier checks kept.

    Only folders that ddpdoctor made in the temporary folder, and none in use. A later check removes them by itself
    when they are 14 days old.

    Exit status: 0 done, 2 wrong usage.
    """

    older_than: float = _age("7d", "Only those that are older, as 12h; 0 for all. [default: 7d]")
    only_list: bool = _flag("Only list them.", "--dry-run")


@dataclass(frozen=True)
class TrainOptions(LaunchOptions):
    """Train with the bundled trainer; the run is kept in runs/.

    Exit status: 0 trained, 1 the run failed, 2 wrong usage.
    """

    settings: list[str] | None = _words(
        "[KEY=VALUE...]", "Settings, such as train.epochs=2 data.batch_size=16."
    )
    config: str | None = _text(
        "NAME | FILE", "A bundled configuration, or your own.", "--config", "-c", completion=_configs
    )
    list_configs: bool = _flag("List the bundled configurations.", "--list")
    dry_run: bool = _flag("Only print the configuration and the distributed environment.", "--dry-run")
    data: str | None = _text(
        "PATH", "Train on this text, or the texts in this folder; same as data.source=PATH."
    )
    quiet: bool = _quiet()


@dataclass(frozen=True)
class BenchOptions:
    """Measure scaling, the parts of a step, and bandwidth.

    On this machine alone, with its own model and data; about half a minute on two CPUs.

    Exit status: 0 measured, 2 could not measure.
    """

    nproc: int | None = _nproc()
    backend: str | None = _backend()
    quick: bool = _flag("A few seconds: fewer sizes, less precise.", "--quick")
    batch_size: int | None = _count(None, "Samples per rank. [default: 4; on GPUs, 32]")
    width: int | None = _count(None, "Width of the model, a multiple of 4. [default: 256; on GPUs, 1024]")
    layers: int | None = _count(None, "Layers of the model. [default: 2; on GPUs, 8]")
    threads: int = _count(1, "CPU threads per rank.")
    timeout: float = _seconds(600.0, "Time limit.")
    plot: str | None = _text("FILE", "Also draw the results: .png or .svg.")
    format: BenchFormat = _choice(BenchFormat.TABLE, "Format of the results.")
    output: str | None = _output()
    quiet: bool = _quiet()


LATEST = "latest"
"""The name of the run that began last."""


def _run() -> Any:
    return _words("RUN", f"A name, the beginning of one, a folder, or {LATEST!r}.", LATEST)


def _runs() -> Any:
    return _words("[RUN...]", f"Names, beginnings of names, folders, or {LATEST!r}. [default: all]")


def _baseline() -> Any:
    return _text("RUN", "The run that counts as 1 x. [default: the last of one process and the same work]")


@dataclass(frozen=True)
class RunsOptions:
    """What the commands of ``runs`` share."""

    runs_folder: str = _text("FOLDER", "The folder with the runs.", "--folder", default="runs")


@dataclass(frozen=True)
class ListOptions(RunsOptions):
    """List the runs, oldest first."""

    format: RunFormat = _choice(RunFormat.TABLE, "Format of the output.")
    output: str | None = _output()


@dataclass(frozen=True)
class ShowOptions(ListOptions):
    """Show one run: its launch, what it reached, its configuration."""

    name: str = _run()


@dataclass(frozen=True)
class SummaryOptions(ListOptions):
    """Throughput, speed-up and efficiency against the run with one process."""

    names: list[str] | None = _runs()
    baseline: str | None = _baseline()


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ListOptions):
    """Set runs side by side: what they reached, how fast, and the settings in which they differ."""

    subjects: list[str] = _words("RUN RUN...", "At least two.", MISSING)
    baseline: str | None = _baseline()
    picture: str | None = _text("FILE", "Draw their curves too: .png or .svg.", "--plot")


@dataclass(frozen=True)
class PlotOptions(RunsOptions):
    """Draw loss, learning rate, gradient norm and throughput; or how throughput grows with the ranks.

    The background is transparent, and the picture is readable on a light and on a dark page.
    """

    names: list[str] | None = _runs()
    output: str = _text("FILE", "The picture: .png or .svg.", "--output", "-o", default="runs.svg")
    what: Picture = _choice(Picture.CURVES, "What to draw.")


@dataclass(frozen=True)
class ExportOptions(RunsOptions):
    """Write a run's metrics as an event file of TensorBoard."""

    name: str = _run()
    tensorboard: str | None = _text("FOLDER", "Where to write the event file. [default: in the run's folder]")
