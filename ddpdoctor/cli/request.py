"""Options, configuration and environment, made into a request; what cannot be is refused in one line."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.cli.config import Config, read_config
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.judging import Request
from ddpdoctor.cli.options import Options
from ddpdoctor.cli.output import open_output, split_selectors
from ddpdoctor.cli.target import job_of
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import default_backend, default_nproc
from ddpdoctor.host.variables import whole_number
from ddpdoctor.job.command import Kind
from ddpdoctor.job.remains import read_job
from ddpdoctor.model import Level
from ddpdoctor.plan import DEFAULT_MASTER_PORT, Plan
from ddpdoctor.recorder.options import KEEP, RecorderOptions
from ddpdoctor.redact import quote
from ddpdoctor.silence import Silencer

RANKS_ON_ONE_CPU = 24
"""Every rank talks to every other, so the work grows with the square of their number and the most that end within
the default time limit with the root of the CPUs. On two busy CPUs 32 ranks took 158 s, 48 did not end in 300 s."""
TIMEOUT = 300.0
"""Seconds for the whole check where nobody says otherwise."""
LONGEST_TIMEOUT = 7 * 24 * 3600.0
"""Seconds; nobody waits longer, and torch cannot count far more."""
SHORTEST_HANG = 2.0
"""Seconds; it takes two looks, a second apart, to tell who works."""
DEFAULT_BATCHES = RecorderOptions().batches
JOB_FOLDER = "job"
"""The folder of the job, inside the run folder."""


def request_of(options: Options) -> Request:
    """What is to be examined.

    Raises:
        UsageError: an option asks for what cannot be.
    """
    config = read_config(Path.cwd())
    selected, ignored = _selectors(options, config)
    host = Host(Plan())
    plan = _plan(options, config, host)
    job = job_of(options.words, options.kind, _recorder(options, config))
    if job is None:
        _refuse_without_job(options)
    return Request(
        host.with_plan(plan),
        selected,
        ignored,
        options.fail_on or config.fail_on or Level.WARN,
        tuple(sys.argv[1:]),
        job=job,
        time_limit=options.time_limit,
        hang_after=_hang_after(options),
        trace=_trace(options),
        keep=options.keep,
        silencer=Silencer(Path.cwd(), config.folder, config.per_file_ignores),
        timeline=open_output(options.timeline, "--timeline"),
    )


def _selectors(options: Options, config: Config) -> tuple[tuple[str, ...], tuple[str, ...]]:
    selected = split_selectors(options.select) or config.select or ()
    ignored = split_selectors(options.ignore) or config.ignore or ()
    try:
        registry.verify_selectors((*selected, *ignored))
    except registry.UnknownSelector as unknown:
        raise UsageError(str(unknown)) from None
    return selected, ignored


def _recorder(options: Options, config: Config) -> RecorderOptions:
    batches = options.batches or config.batches or DEFAULT_BATCHES
    if options.batches is not None and options.batches < 1:
        raise UsageError(f"--batches {options.batches} is less than 1")
    if options.rehearse_hosts is not None and options.rehearse_hosts < 1:
        raise UsageError(f"--rehearse-hosts {options.rehearse_hosts} is less than 1")
    limit = options.time_limit
    if limit is not None and not 0 < limit <= LONGEST_TIMEOUT:
        raise UsageError(
            f"--time-limit is {limit:g}, and a time limit is more than 0 seconds and at most a week"
        )
    if options.exact and (options.kind is Kind.LINE or options.nnodes > 1):
        raise UsageError("--exact runs the script again in one process: ddpdoctor check --exact train.py")
    exact = KEEP if options.exact else ""
    limit = RecorderOptions().time_limit if limit is None else limit
    return RecorderOptions(batches, options.full, limit, options.imaginary_hosts, exact)


def _refuse_without_job(options: Options) -> None:
    asked = {
        "--batches": options.batches,
        "--full": options.full,
        "--time-limit": options.time_limit,
        "--hang-after": options.hang_after,
        "--rehearse": options.rehearse,
        "--rehearse-hosts": options.rehearse_hosts,
        "--exact": options.exact,
    }
    for name, value in asked.items():
        if value:
            raise UsageError(f"{name} is about a script, and none is given: ddpdoctor check {name} train.py")


def _hang_after(options: Options) -> float | None:
    given = options.hang_after
    if given is not None and not SHORTEST_HANG <= given <= LONGEST_TIMEOUT:
        raise UsageError(
            f"--hang-after {given:g} is less than {SHORTEST_HANG:g} seconds, or more than a week"
        )
    return given


def _trace(options: Options) -> Path | None:
    if options.trace is None:
        return None
    if options.words:
        raise UsageError("--trace judges an earlier run, and takes no script")
    folder = Path(options.trace)
    for place in (folder / JOB_FOLDER, folder):
        try:
            if read_job(place):
                return place
        except (KeyError, TypeError, ValueError, OSError):
            break
    raise UsageError(f"--trace {quote(options.trace)} is not the folder of a run that ddpdoctor kept")


def _plan(options: Options, config: Config, host: Host) -> Plan:
    if options.nnodes < 1 or not 0 <= options.node_rank < options.nnodes:
        raise UsageError(f"--node-rank {options.node_rank} is not a node of --nnodes {options.nnodes}")
    address, port = _endpoint(options)
    if options.nnodes > 1 and address is None:
        raise UsageError(
            "--nnodes above 1 needs --master-addr: the address of node 0, the same on every node"
        )
    nproc = options.nproc if options.nproc is not None else config.nproc
    nproc = verify_nproc(default_nproc(host) if nproc is None else nproc, host)
    return Plan(
        nproc=nproc,
        nnodes=options.nnodes,
        node_rank=options.node_rank,
        backend=_backend(options, host, nproc),
        master_addr=address or "127.0.0.1",
        master_port=_master_port(port, host),
        checkpoint_dir=_checkpoint_dir(options),
        rendezvous=_rendezvous(options),
        standalone=options.standalone,
        timeout=_timeout(options),
        explicit=_explicit(options.backend, address, port),
    )


def _explicit(backend: str | None, address: str | None, port: int | None) -> frozenset[str]:
    given = {"backend": backend, "master_addr": address, "master_port": port}
    return frozenset(name for name, value in given.items() if value)


def _timeout(options: Options) -> float:
    if options.timeout is None:
        # What the job may take is its own matter where its length was asked for.
        return LONGEST_TIMEOUT if options.full or options.time_limit else TIMEOUT
    if not 0 < options.timeout <= LONGEST_TIMEOUT:
        raise UsageError(
            f"--timeout is {options.timeout:g}, and a time limit is more than 0 seconds and at most a week"
        )
    return options.timeout


def _backend(options: Options, host: Host, nproc: int) -> str:
    if options.imaginary_hosts and options.backend is None:
        return "gloo"
    return (options.backend or default_backend(host, nproc)).lower()


def _rendezvous(options: Options) -> tuple[tuple[str, str], ...]:
    given = {
        "backend": options.rdzv_backend,
        "endpoint": options.rdzv_endpoint,
        "id": options.rdzv_id,
    }
    return tuple((name, value) for name, value in given.items() if value is not None)


def _endpoint(options: Options) -> tuple[str | None, int | None]:
    """Where ranks meet, as far as it was given: by the master's options, or by the rendezvous endpoint."""
    address, port = options.master_addr, options.master_port
    if port is not None and not 0 < port < 65536:
        raise UsageError(f"--master-port {port} is not between 1 and 65535")
    if options.rdzv_endpoint is None:
        return address, port
    host, _, text = options.rdzv_endpoint.rpartition(":")
    number = whole_number(text) if host else None
    return address or host or options.rdzv_endpoint, port or number or None


def verify_nproc(nproc: int, host: Host) -> int:
    """The number of ranks, where this machine can sensibly run so many.

    Raises:
        UsageError: it cannot.
    """
    most = int(RANKS_ON_ONE_CPU * math.sqrt(host.system.cpus()[1]))
    if not 1 <= nproc <= most:
        raise UsageError(
            f"--nproc {nproc} is not between 1 and {most}, the most that is sensible on this machine"
        )
    return nproc


def _master_port(given: int | None, host: Host) -> int:
    if given is not None:
        return given
    # Anything else in the variable is for DD001 to tell.
    port = whole_number(host.environ.get("MASTER_PORT", "")) or 0
    return port if 0 < port < 65536 else DEFAULT_MASTER_PORT


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
