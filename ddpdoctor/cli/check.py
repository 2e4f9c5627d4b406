"""``ddpdoctor check``: options to a request, the examination, the report, the exit status."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from ddpdoctor import registry
from ddpdoctor.cli.errors import INTERRUPTED, UsageError
from ddpdoctor.cli.examination import Request, examine
from ddpdoctor.cli.output import write_out
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import default_backend, default_nproc
from ddpdoctor.host.variables import whole_number
from ddpdoctor.model import Level, Report
from ddpdoctor.plan import DEFAULT_MASTER_PORT, Plan
from ddpdoctor.progress import Progress
from ddpdoctor.redact import clean, quote
from ddpdoctor.report import Format, render

RANKS_PER_CPU = 32
"""More than this on one CPU start for minutes and measure nothing but each other."""
FEWEST_RANKS_ALLOWED = 64
"""However few CPUs there are."""
LONGEST_TIMEOUT = 7 * 24 * 3600.0
"""Seconds; nobody waits longer, and torch cannot count far more."""


@dataclass(frozen=True)
class Options:
    """The options of ``check`` as they were given; None where one was not."""

    nproc: int | None = None
    nnodes: int = 1
    node_rank: int = 0
    master_addr: str | None = None
    master_port: int | None = None
    backend: str | None = None
    checkpoint_dir: str | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: Level = Level.WARN
    timeout: float = 300.0
    format: str = "terminal"
    output: str | None = None
    verbose: bool = False
    quiet: bool = False


def run_check(options: Options) -> int:
    """Examine, write the report, and return the exit status.

    Raises:
        UsageError: an option asks for what cannot be.
    """
    request = _request(options)
    output = _open_output(options.output)
    try:
        with _stopped_by_signals(), Progress(quiet=options.quiet) as progress:
            report = examine(request, progress)
    except KeyboardInterrupt:
        print("ddpdoctor: stopped; nothing of it is left running", file=sys.stderr)
        return INTERRUPTED
    _write(clean(report, os.environ), options, output)
    return report.exit_status


def _request(options: Options) -> Request:
    selected, ignored = _split(options.select), _split(options.ignore)
    try:
        registry.verify_selectors((*selected, *ignored))
    except registry.UnknownSelector as unknown:
        raise UsageError(str(unknown)) from None
    host = Host(Plan())
    plan = _plan(options, host)
    return Request(host.with_plan(plan), selected, ignored, options.fail_on, tuple(sys.argv[1:]))


def _split(selectors: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(one.strip() for text in selectors for one in text.split(",") if one.strip())


def _plan(options: Options, host: Host) -> Plan:
    nproc = default_nproc(host) if options.nproc is None else options.nproc
    if not 0 < options.timeout <= LONGEST_TIMEOUT:
        raise UsageError(
            f"--timeout is {options.timeout:g}, and a time limit is more than 0 seconds and at most a week"
        )
    if options.nnodes < 1 or not 0 <= options.node_rank < options.nnodes:
        raise UsageError(f"--node-rank {options.node_rank} is not a node of --nnodes {options.nnodes}")
    if options.nnodes > 1 and options.master_addr is None:
        raise UsageError(
            "--nnodes above 1 needs --master-addr: the address of node 0, the same on every node"
        )
    return Plan(
        nproc=_verify_nproc(nproc, host),
        nnodes=options.nnodes,
        node_rank=options.node_rank,
        backend=(options.backend or default_backend(host, nproc)).lower(),
        master_addr=options.master_addr or "127.0.0.1",
        master_port=_master_port(options, host),
        checkpoint_dir=_checkpoint_dir(options),
        timeout=options.timeout,
        explicit=frozenset(
            name for name in ("backend", "master_addr", "master_port") if getattr(options, name)
        ),
    )


def _verify_nproc(nproc: int, host: Host) -> int:
    most = max(FEWEST_RANKS_ALLOWED, RANKS_PER_CPU * host.system.cpus()[1])
    if not 1 <= nproc <= most:
        raise UsageError(
            f"--nproc {nproc} is not between 1 and {most}, the most that is sensible on this machine"
        )
    return nproc


def _master_port(options: Options, host: Host) -> int:
    if options.master_port is None:
        text = host.environ.get("MASTER_PORT", "")
        # Anything else in the variable is for DD001 to tell.
        port = whole_number(text) or 0
        return port if 0 < port < 65536 else DEFAULT_MASTER_PORT
    if not 0 < options.master_port < 65536:
        raise UsageError(f"--master-port {options.master_port} is not between 1 and 65535")
    return options.master_port


def _checkpoint_dir(options: Options) -> str:
    temporary = _temporary_folder()
    folder = options.checkpoint_dir or temporary
    if os.path.exists(folder) and not os.path.isdir(folder):  # noqa: PTH110, PTH112 - Path's raise on long names
        raise UsageError(f"--checkpoint-dir {quote(folder)} is a file, and checkpoints go into a folder")
    return str(Path(folder).absolute())


def _temporary_folder() -> str:
    try:
        return tempfile.gettempdir()
    except FileNotFoundError:
        raise UsageError("no temporary folder can be written; TMPDIR names the one to use") from None


def _open_output(path: str | None) -> Path | None:
    """Refuse an output file that cannot be written before anything else is done."""
    if path is None:
        return None
    if Path(path).is_fifo():  # opened once, by the report: its reader leaves when it is closed
        return Path(path)
    try:
        with Path(path).open("a"):
            return Path(path)
    except OSError as failed:
        raise UsageError(f"--output {quote(path)} cannot be written: {failed.strerror}") from None


def _write(report: Report, options: Options, output: Path | None) -> None:
    text = render(report, Format(options.format), verbose=options.verbose, to_terminal=output is None)
    if output is None:
        write_out(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as failed:
        raise UsageError(f"--output {quote(str(output))} cannot be written: {failed.strerror}") from None


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end a check in order, as Ctrl-C does; SIGHUP stays ignored under nohup."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    numbers = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
