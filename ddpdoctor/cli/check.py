"""``ddpdoctor check``: options to a request, the examination, the report, the exit status."""

from __future__ import annotations

import contextlib
import math
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
from ddpdoctor.cli.output import open_output, split_selectors, write_report
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import default_backend, default_nproc
from ddpdoctor.host.variables import whole_number
from ddpdoctor.model import Level
from ddpdoctor.plan import DEFAULT_MASTER_PORT, Plan
from ddpdoctor.progress import Progress
from ddpdoctor.redact import clean, quote
from ddpdoctor.report import Format

RANKS_ON_ONE_CPU = 24
"""Every rank talks to every other, so the work grows with the square of their number and the most that end within
the default time limit with the root of the CPUs. On two busy CPUs 32 ranks took 158 s, 48 did not end in 300 s."""
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
    output = open_output(options.output)
    try:
        with _stopped_by_signals(), Progress(quiet=options.quiet) as progress:
            report = examine(request, progress)
    except KeyboardInterrupt:
        print("ddpdoctor: stopped; nothing of it is left running", file=sys.stderr)
        return INTERRUPTED
    write_report(clean(report, os.environ), Format(options.format), output, verbose=options.verbose)
    return report.exit_status


def _request(options: Options) -> Request:
    selected, ignored = split_selectors(options.select), split_selectors(options.ignore)
    try:
        registry.verify_selectors((*selected, *ignored))
    except registry.UnknownSelector as unknown:
        raise UsageError(str(unknown)) from None
    host = Host(Plan())
    plan = _plan(options, host)
    return Request(host.with_plan(plan), selected, ignored, options.fail_on, tuple(sys.argv[1:]))


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
    most = int(RANKS_ON_ONE_CPU * math.sqrt(host.system.cpus()[1]))
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
