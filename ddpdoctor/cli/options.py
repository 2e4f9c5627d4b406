"""The options of the commands, each declared once: its name, its meaning, its bounds, its default.

A command takes one value of a dataclass made of the groups that it needs; ``command.py`` makes typer's command of it,
with the option of typer that stands in the metadata of each field. Those of ``runs`` are in ``run_options.py``.
"""

# ruff: noqa: RUF009 - the functions that are called in dataclasses return fields

from dataclasses import MISSING, dataclass
from enum import Enum

from ddpdoctor.cli import option
from ddpdoctor.cli.option import NodeCount
from ddpdoctor.model import Level
from ddpdoctor.report import Format

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


class PageFormat(str, Enum):
    """The formats of ``checks``."""

    TERMINAL = "terminal"
    JSON = "json"


class BenchFormat(str, Enum):
    """The formats of ``bench``."""

    TABLE = "table"
    JSON = "json"
    HTML = "html"


@dataclass(frozen=True)
class JobOptions:
    """What is run."""

    words: list[str] | None = option.words(
        WORDS,
        "A script or a module, started by torchrun; or a whole launch line, as in -- torchrun train.py.",
    )
    """As they were given, with the ``--`` of a command line."""
    module: bool = option.flag("SCRIPT is a module, as for python -m.", "--module", "-m")


@dataclass(frozen=True)
class LaunchOptions:
    """torchrun's, with its names and meanings."""

    nproc: int | None = option.nproc()
    nodes: NodeCount | None = option.nodes()
    node_rank: int | None = option.number(
        None, "N", "This node's. [default: 0; check gives numbers]", least=0
    )
    master_addr: str | None = option.text("ADDRESS", "Address of node 0. [default: 127.0.0.1]")
    master_port: int | None = option.number(
        None,
        "PORT",
        "Port of node 0. [default: MASTER_PORT or 29500; free on one node]",
        least=1,
        most=65535,
    )
    standalone: bool = option.flag("Single node, on a free port.", "--standalone")
    max_restarts: int | None = option.number(
        None, "N", "Restarts of the ranks after a failure. [default: 0]", least=0
    )
    rdzv_backend: str | None = option.text("NAME", "Rendezvous backend, as c10d.")
    rdzv_endpoint: str | None = option.text("HOST:PORT", "Rendezvous endpoint.")
    rdzv_id: str | None = option.text("ID", "Id of the job at the rendezvous.")
    rdzv_conf: str | None = option.text("KEY=VALUE,...", "More rendezvous configuration.")

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

    select: list[str] | None = option.text(
        "CODES", "Only these: codes, names, families, host, group, run.", completion=option.codes
    )
    ignore: list[str] | None = option.text("CODES", "Not these checks.", completion=option.codes)


@dataclass(frozen=True)
class ReportOptions:
    """How and where the report is written."""

    format: list[Format] | None = option.formats()
    output: list[str] | None = option.outputs()
    """One for each format, in their order; ``command.py`` sees to that."""
    verbose: bool = option.flag("Also show what passed or was skipped.", "--verbose", "-v")

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

    fail_on: Level | None = option.fail_on()
    hang_after: float | None = option.seconds(
        None, "No progress for so long is a hang. [default: varies]", SHORTEST_HANG
    )
    keep: bool = option.flag("Keep the run folder even if nothing was found.", "--keep")
    quiet: bool = option.quiet()


@dataclass(frozen=True)
class PatchOptions:
    """What is done with patches."""

    apply: bool = option.flag("Write the verified patches into your files.", "--apply")
    diff: str | None = option.text("FILE", "Write the verified patches here, for git apply.")
    force: bool = option.flag("With --apply: also into files with uncommitted changes.", "--force")


@dataclass(frozen=True)
class CheckOptions(PatchOptions, RunOptions):
    """Check this host, a live process group, and your training script.

    Without SCRIPT, a small bundled trainer runs. Options of this command go before SCRIPT; what stands after it is
    passed to the script.

    Exit status: 0 nothing above info, 1 findings, 2 could not examine.
    """

    backend: str | None = option.backend()
    budget: float | None = option.seconds(
        None, "Training that a script may take; a longer one is cut short. [default: 30]"
    )
    batches: int | None = option.count(None, "Cut each pass over a DataLoader after N batches instead.")
    full: bool = option.flag("Run the script at its full length.", "--full")
    time_limit: float | None = option.seconds(None, "End the script after this time, and judge what it did.")
    rehearse: bool = option.flag("Run a script for GPUs and NCCL on the CPU.", "--rehearse")
    world_size: int | None = option.number(
        None,
        "N",
        "Rehearse a job of N ranks, a few of them real.",
        least=2,
        most=100_000,
    )
    trace: str | None = option.text("FOLDER...", "Judge a run again, from its kept folders.")
    compare: str | None = option.text("FOLDER", "Compare with an earlier run, from its kept folder.")
    checkpoint_dir: str | None = option.text("FOLDER", "Where checkpoints go. [default: /tmp]")
    timeout: float | None = option.seconds(None, "Of the whole check. [default: 300; none with --full]")
    keep_files: bool = option.flag("Keep the files that the script writes.", "--keep-files")
    no_run: bool = option.flag("Only read the source of scripts; nothing is run.", "--no-run")
    no_unreached: bool = option.flag("Do not judge lines that the run did not reach.", "--no-unreached")
    fix: bool = option.flag("Propose patches, each verified on a changed copy.", "--fix")


@dataclass(frozen=True, kw_only=True)
class FixOptions(ReportOptions, SelectionOptions, PatchOptions):
    """Propose patches for findings, each verified on a changed copy.

    Nothing is written to your files without --apply.

    Exit status: that of the check.
    """

    run_folder: str = option.words("FOLDER", "The folder of a run that check kept.", MISSING)
    fail_on: Level | None = option.fail_on()
    timeout: float | None = option.seconds(None, "Time limit of each run of a changed copy. [default: 300]")
    quiet: bool = option.quiet()


@dataclass(frozen=True)
class WatchOptions(RunOptions):
    """Run a whole job; if it hangs or crashes, report the cause.

    Ctrl-C and SIGTERM are passed on to the job; a second one ends it at once.

    Exit status: the job's own if that is not 0; else 0, or 1 if something was found. 1 after a hang.
    """

    fail_on: Level | None = option.level(
        Level.FAIL,
        "Lowest level of a finding that makes the exit status of a job that succeeded 1. [default: fail]",
    )
    on_hang: OnHang = option.choice(
        OnHang.STOP,
        "stop: report the cause and end the job; report: report the cause and leave the job alone; "
        "dump: as stop, and keep the run folder here.",
    )
    metrics: str | None = option.text(
        "[HOST]:PORT | FILE", "Offer steps, waits and memory of each rank to Prometheus there, or write them."
    )


@dataclass(frozen=True)
class TopOptions:
    """Show how a running job is doing, rank by rank: steps, waits, memory, the last checkpoint.

    Of a job under `ddpdoctor watch` or `check`, from what its ranks record; the job is not touched. On a terminal a
    screen until Ctrl-C, in a pipe a line every ten seconds.

    Exit status: 0 shown, 2 there is no such job.
    """

    run: str | None = option.words(
        "[RUN]",
        "The folder of a run. [default: the last that was started in this directory, or on this host]",
    )
    once: bool = option.flag("Print all ranks once, and exit.", "--once")
    every: float | None = option.seconds(None, "Between two looks. [default: 1; in a pipe 10]")


@dataclass(frozen=True)
class HangOptions(ReportOptions):
    """Find out why a running job hangs, and which rank is the cause.

    The job needs no recorder and keeps running.

    Exit status: 0 nothing hangs, 1 a hang was found, 2 could not look.
    """

    subjects: list[str] | None = option.words(
        "[PID... | FOLDER...]",
        "The launcher or any rank of a job; or folders that --dump wrote. [default: the job on this host]",
    )
    dump: str | None = option.text("FOLDER", "Keep what was seen in this folder, to judge it again later.")
    flight_recorder: str | None = option.text("FOLDER", "Judge the dumps of PyTorch's flight recorder.")
    quiet: bool = option.quiet()


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ReportOptions):
    """Print the page of a check, or find the cause in a job's output.

    Exit status for output: 0 nothing above info, 1 findings, 2 could not read.
    """

    subjects: list[str] = option.words(
        "CODE | FILE...",
        "The code or name of a check; or files and folders with the output of a job, - for stdin.",
        MISSING,
        option.codes,
    )
    facts: bool = option.flag("Print what NCCL logged: versions, interfaces, transports, rings.", "--facts")
    fail_on: Level | None = option.fail_on()


@dataclass(frozen=True)
class ChecksOptions:
    """List every check: its code, what it verifies, where it looks."""

    format: PageFormat = option.choice(PageFormat.TERMINAL, "Format of the list.")


@dataclass(frozen=True)
class DemoOptions:
    """Show a problem and its correction on a small script.

    The script is written into a folder, checked and explained; then the same with its correction.

    Exit status: 0 shown, 1 the check did not find what it should, 2 wrong usage.
    """

    subject: str | None = option.words(
        "[CODE]", "The code or name of the check to show.", completion=option.codes
    )
    list_demos: bool = option.flag("List the checks that have a demo.", "--list")
    folder: str = option.text("FOLDER", "Write the scripts to this folder.", default="ddpdoctor-demo")
    quiet: bool = option.quiet()


@dataclass(frozen=True)
class CleanOptions:
    """Remove the run folders that earlier checks kept.

    Only folders that ddpdoctor made in the temporary folder, and none in use. A later check removes them by itself
    when they are 14 days old.

    Exit status: 0 done, 2 wrong usage.
    """

    older_than: float = option.age("7d", "Only those that are older, as 12h; 0 for all. [default: 7d]")
    only_list: bool = option.flag("Only list them.", "--dry-run")


@dataclass(frozen=True)
class TrainOptions(LaunchOptions):
    """Train with the bundled trainer; the run is kept in runs/.

    Exit status: 0 trained, 1 the run failed, 2 wrong usage.
    """

    settings: list[str] | None = option.words(
        "[KEY=VALUE...]", "Settings, such as train.epochs=2 data.batch_size=16."
    )
    config: str | None = option.text(
        "NAME | FILE", "A bundled configuration, or your own.", "--config", "-c", completion=option.configs
    )
    list_configs: bool = option.flag("List the bundled configurations.", "--list")
    dry_run: bool = option.flag("Only print the configuration and the distributed environment.", "--dry-run")
    data: str | None = option.text(
        "PATH", "Train on this text, or the texts in this folder; same as data.source=PATH."
    )


@dataclass(frozen=True)
class BenchOptions:
    """Measure scaling, the parts of a step, and bandwidth.

    On this machine alone, with its own model and data; about half a minute on two CPUs.

    Exit status: 0 measured, 2 could not measure.
    """

    nproc: int | None = option.nproc()
    backend: str | None = option.backend()
    quick: bool = option.flag("A few seconds: fewer sizes, less precise.", "--quick")
    batch_size: int | None = option.count(None, "Samples per rank. [default: 4; on GPUs, 32]")
    width: int | None = option.count(
        None, "Width of the model, a multiple of 4. [default: 256; on GPUs, 1024]"
    )
    layers: int | None = option.count(None, "Layers of the model. [default: 2; on GPUs, 8]")
    threads: int = option.count(1, "CPU threads per rank.")
    timeout: float = option.seconds(600.0, "Time limit.")
    format: BenchFormat = option.choice(BenchFormat.TABLE, "Format of the results.")
    output: str | None = option.output()
    quiet: bool = option.quiet()
