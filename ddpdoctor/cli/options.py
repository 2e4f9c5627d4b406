"""The options of the commands, each declared once: its name, its meaning, its bounds, its default.

A command takes one value of a dataclass made of the groups that it needs; ``command.py`` makes typer's command of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

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


def _number(
    kind: type[int] | type[float], metavar: str, help: str, *names: str, least: float, most: float = math.inf
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

    return typer.Option(*names, metavar=metavar, help=help, parser=parse)


def _seconds(help: str, least: float = 0.001) -> Any:
    return _number(float, "SECONDS", help, least=least, most=LONGEST)


def _count(help: str, *names: str) -> Any:
    return _number(int, "N", help, *names, least=1)


def _text(metavar: str, help: str) -> Any:
    return typer.Option(metavar=metavar, help=help)


def _flag(name: str, help: str, *short: str) -> Any:
    return typer.Option(name, *short, help=help)


def _level(help: str) -> Any:
    """An option that is a level which may make the exit status 1."""

    def parse(text: str) -> Level:
        if text not in (Level.FAIL.value, Level.WARN.value):
            raise typer.BadParameter(f"{text!r} is neither 'fail' nor 'warn'")
        return Level(text)

    return typer.Option(metavar="[fail|warn]", parser=parse, help=help, show_default=False)


Nproc = Annotated[
    int | None,
    _count(
        "Ranks on this node. [default: from the configuration, if any; else one per GPU, or 2]",
        "--nproc-per-node",
        "--nproc",
    ),
]
Backend = Annotated[
    str | None, _text("NAME", "nccl or gloo. [default: nccl if every rank has its own GPU, else gloo]")
]
FailOn = Annotated[
    Level | None, _level("Lowest level of a finding that makes the exit status 1. [default: warn]")
]
Quiet = Annotated[bool, _flag("--quiet", "No progress on stderr.", "-q")]
Output = Annotated[str | None, _text("FILE", "Write the report to this file instead of stdout.")]
Timeline = Annotated[
    str | None, _text("FILE", "Write a timeline of what each rank did, for ui.perfetto.dev.")
]


@dataclass(frozen=True)
class JobOptions:
    """What is run."""

    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar=WORDS,
            help="A training script or a module, which is started by torchrun; or a whole command line that starts "
            "the ranks itself, as in -- torchrun train.py.",
        ),
    ] = None
    """As they were given, with the ``--`` of a command line."""
    module: Annotated[bool, _flag("--module", "SCRIPT is the name of a module, as for python -m.", "-m")] = (
        False
    )


@dataclass(frozen=True)
class LaunchOptions:
    """torchrun's, with its names and meanings."""

    nproc: Nproc = None
    nnodes: Annotated[int, _count("Number of nodes; run the same command on each.")] = 1
    node_rank: Annotated[
        int,
        _number(int, "N", "Rank of this node; node 0 is at --master-addr.", least=0),
    ] = 0
    master_addr: Annotated[
        str | None, _text("ADDRESS", "Address of node 0. [default: 127.0.0.1 on a single node]")
    ] = None
    master_port: Annotated[
        int | None,
        _number(
            int,
            "PORT",
            "Port of node 0. [default: MASTER_PORT, or 29500; a free one for a job on one node]",
            least=1,
            most=65535,
        ),
    ] = None
    standalone: Annotated[bool, _flag("--standalone", "Single node, on a free port.")] = False
    rdzv_backend: Annotated[str | None, _text("NAME", "torchrun's rendezvous backend, as c10d.")] = None
    rdzv_endpoint: Annotated[str | None, _text("HOST:PORT", "The rendezvous endpoint.")] = None
    rdzv_id: Annotated[str | None, _text("ID", "The id of the job at the rendezvous.")] = None
    rdzv_conf: Annotated[str | None, _text("KEY=VALUE,...", "More rendezvous configuration.")] = None

    @property
    def rendezvous(self) -> tuple[tuple[str, str], ...]:
        """What is given of torchrun's ``--rdzv-NAME VALUE``."""
        values = {
            "backend": self.rdzv_backend,
            "endpoint": self.rdzv_endpoint,
            "id": self.rdzv_id,
            "conf": self.rdzv_conf,
        }
        return tuple((name, value) for name, value in values.items() if value is not None)


@dataclass(frozen=True)
class SelectionOptions:
    """Which checks are asked, and what counts."""

    select: Annotated[
        list[str] | None,
        _text(
            "CODES",
            "Only these checks: codes, the beginning of codes, names, families, or host, group, run.",
        ),
    ] = None
    ignore: Annotated[list[str] | None, _text("CODES", "Not these checks.")] = None


@dataclass(frozen=True)
class ReportOptions:
    """How and where the report is written."""

    format: Annotated[Format, typer.Option(help="Format of the report.")] = Format.TERMINAL
    output: Output = None
    verbose: Annotated[
        bool, _flag("--verbose", "Also show checks that passed or were skipped, and what they saw.", "-v")
    ] = False


@dataclass(frozen=True)
class RunOptions(ReportOptions, SelectionOptions, LaunchOptions, JobOptions):
    """What ``check`` and ``watch`` share."""

    fail_on: FailOn = None
    hang_after: Annotated[
        float | None,
        _seconds(
            "Report a hang after this long without progress. [default: depends on the run]", SHORTEST_HANG
        ),
    ] = None
    keep: Annotated[bool, _flag("--keep", "Keep the run folder even if nothing was found.")] = False
    timeline: Timeline = None
    quiet: Quiet = False


@dataclass(frozen=True)
class CheckOptions(RunOptions):
    """Of ``check``."""

    backend: Backend = None
    batches: Annotated[int | None, _count("Batches per pass over a DataLoader. [default: 8]")] = None
    full: Annotated[bool, _flag("--full", "Run the script at its full length.")] = False
    time_limit: Annotated[
        float | None, _seconds("End the script after this time, and judge what it did until then.")
    ] = None
    rehearse: Annotated[
        bool, _flag("--rehearse", "Run a script for GPUs and NCCL on the CPU, with gloo.")
    ] = False
    rehearse_hosts: Annotated[int | None, _count("Rehearse as if the ranks were on N hosts.")] = None
    exact: Annotated[
        bool,
        _flag("--exact", "Also run the script in a single process, and compare the first gradients."),
    ] = False
    trace: Annotated[
        str | None, _text("FOLDER", "Judge an earlier run again, from the run folder that was kept.")
    ] = None
    checkpoint_dir: Annotated[
        str | None, _text("FOLDER", "The folder that checkpoints will go to. [default: the temporary folder]")
    ] = None
    timeout: Annotated[
        float | None, _seconds("Time limit of the whole check. [default: 300; none with --full]")
    ] = None

    @property
    def imaginary_hosts(self) -> int:
        """Hosts of a rehearsal; 0 where devices are real."""
        return int(self.rehearse) if self.rehearse_hosts is None else self.rehearse_hosts


@dataclass(frozen=True)
class WatchOptions(RunOptions):
    """Of ``watch``."""

    fail_on: Annotated[
        Level | None,
        _level(
            "Lowest level of a finding that makes the exit status of a job that succeeded 1. [default: fail]"
        ),
    ] = Level.FAIL
    on_hang: Annotated[
        OnHang,
        typer.Option(
            help="stop: report the cause and end the job; report: report the cause and leave the job alone; "
            "dump: as stop, and keep the run folder here."
        ),
    ] = OnHang.STOP


@dataclass(frozen=True)
class HangOptions(ReportOptions):
    """Of ``hang``."""

    subjects: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PID... | FOLDER...]",
            help="The launcher or any rank of a job; or folders that --dump wrote. [default: the job on this host]",
        ),
    ] = None
    dump: Annotated[
        str | None, _text("FOLDER", "Keep what was seen in this folder, to judge it again later.")
    ] = None
    flight_recorder: Annotated[
        str | None, _text("FOLDER", "Judge the dumps of PyTorch's flight recorder.")
    ] = None
    timeline: Timeline = None
    quiet: Quiet = False


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(ReportOptions):
    """Of ``explain``."""

    subjects: Annotated[
        list[str],
        typer.Argument(
            metavar="CODE | FILE...",
            help="The code or name of a check; or files and folders with the output of a job, - for stdin.",
        ),
    ]
    facts: Annotated[
        bool,
        _flag("--facts", "Print what NCCL logged: versions, interfaces, transports, rings."),
    ] = False
    fail_on: FailOn = None


@dataclass(frozen=True)
class TrainOptions(LaunchOptions):
    """Of ``train``."""

    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE...]", help="Settings, such as train.epochs=2 data.batch_size=16."),
    ] = None
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", metavar="NAME | FILE", help="A bundled configuration, or your own."),
    ] = None
    list_configs: Annotated[bool, _flag("--list", "List the bundled configurations.")] = False
    dry_run: Annotated[
        bool, _flag("--dry-run", "Only print the configuration and the distributed environment.")
    ] = False
    data: Annotated[
        str | None,
        _text("PATH", "Train on this text, or the texts in this folder; same as data.source=PATH."),
    ] = None
    quiet: Quiet = False


@dataclass(frozen=True)
class BenchOptions:
    """Of ``bench``."""

    nproc: Nproc = None
    backend: Backend = None
    quick: Annotated[bool, _flag("--quick", "A few seconds: fewer sizes, less precise.")] = False
    batch_size: Annotated[int | None, _count("Samples per rank. [default: 4; on GPUs, 32]")] = None
    width: Annotated[
        int | None, _count("Width of the model, a multiple of 4. [default: 256; on GPUs, 1024]")
    ] = None
    layers: Annotated[int | None, _count("Layers of the model. [default: 2; on GPUs, 8]")] = None
    threads: Annotated[int, _count("CPU threads per rank.")] = 1
    timeout: Annotated[float, _seconds("Time limit.")] = 600.0
    plot: Annotated[str | None, _text("FILE", "Also draw the results: .png or .svg.")] = None
    format: Annotated[BenchFormat, typer.Option(help="Format of the results.")] = BenchFormat.TABLE
    output: Output = None
    quiet: Quiet = False
