"""The options of torchrun and ``--world-size``, made into the launch that everything else reads; refused in one line
where it cannot be."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import CheckOptions, LaunchOptions
from ddpdoctor.host import Host
from ddpdoctor.host.gpus import default_nproc
from ddpdoctor.host.known_variables import whole_number
from ddpdoctor.launch import DEFAULT_MASTER_PORT, UNNUMBERED, Imagined, Launch

RANKS_ON_ONE_CPU = 24
"""Every rank talks to every other, so the work grows with the square of their number and the most that end within
the default time limit with the root of the CPUs. On two busy CPUs 32 ranks took 158 s, 48 did not end in 300 s."""

_LAUNCHER = re.compile(
    r"-- (?:\S*/)?(?:torchrun|accelerate|deepspeed|python\S*( -\S+)* -m torch\.distributed\.(?:run|launch))\s"
)
_PORT_OF_LINE = re.compile(r" --(?:master[-_]port|main_process_port)[= ](?P<port>[1-9]\d{0,4})\b")


def launch_of(options: LaunchOptions, host: Host) -> Launch:
    """The launch that these options ask for; UsageError where it cannot be."""
    if options.node_rank is not None and not 0 <= options.node_rank < options.nnodes:
        raise UsageError(f"--node-rank {options.node_rank} is not a node of --nnodes {options.nnodes}")
    address, port = _endpoint(options, host)
    if options.nnodes > 1 and address is None:
        raise UsageError(
            "--nnodes above 1 requires --master-addr or --rdzv-endpoint: node 0, the same on every node"
        )
    given = {"master_addr": address, "master_port": port}
    launch = Launch(
        nproc=ranks_on(host, options.nproc),
        nnodes=options.nnodes,
        spare_nodes=options.nodes.spare if options.nodes else 0,
        max_restarts=options.max_restarts or 0,
        node_rank=_node_rank(options, address, host),
        master_addr=address or "127.0.0.1",
        master_port=port or _port_of_environment(host) or DEFAULT_MASTER_PORT,
        rendezvous=options.rendezvous,
        standalone=options.standalone,
        explicit=frozenset(name for name, value in given.items() if value),
    )
    return replace(launch, rendezvous=_elastic_rendezvous(launch)) if launch.spare_nodes else launch


def with_port_of_line(launch: Launch, words: Sequence[str]) -> Launch:
    """The launch with the master port that a launch line names to a launcher of torch's kind; else with none."""
    line, script, _ = " ".join(words).partition(".py")
    is_of_torch = script and _LAUNCHER.match(line) and "--standalone" not in line
    match = _PORT_OF_LINE.search(line) if is_of_torch else None
    if match is None:
        return replace(launch, explicit=launch.explicit - {"master_port"})
    return replace(launch, master_port=int(match["port"]), explicit=launch.explicit | {"master_port"})


def _elastic_rendezvous(launch: Launch) -> tuple[tuple[str, str], ...]:
    """What is given of it, and c10d at node 0 where nothing is: torchrun's default takes a fixed number of nodes."""
    usual = {"backend": "c10d", "endpoint": f"{launch.master_addr}:{launch.master_port}"}
    return tuple({**usual, **dict(launch.rendezvous)}.items())


def ranks_on(host: Host, nproc: int | None) -> int:
    """The ranks of this node: as many as are asked for, or one for each GPU, or 2; UsageError where this machine cannot
    sensibly run so many."""
    nproc = default_nproc(host) if nproc is None else nproc
    most = int(RANKS_ON_ONE_CPU * math.sqrt(host.system.cpus()[1]))
    if not 1 <= nproc <= most:
        raise UsageError(f"--nproc {nproc} is not between 1 and {most}, the most that this machine can run")
    return nproc


def _node_rank(options: LaunchOptions, address: str | None, host: Host) -> int:
    """As torch's c10d rendezvous has it where no number is given: the node is 0 that has the address."""
    elastic = options.nodes is not None and options.nodes.spare
    if options.node_rank is not None and not elastic:
        return options.node_rank
    return 0 if options.nnodes == 1 or address is None or _is_here(address, host) else UNNUMBERED


def _is_here(address: str, host: Host) -> bool:
    here = [known for interface in host.interfaces for known in interface.addresses]
    return address == host.hostname or not {address, *host.system.resolve(address)}.isdisjoint(here)


def _endpoint(options: LaunchOptions, host: Host) -> tuple[str | None, int | None]:
    """Where ranks meet, as far as it was given: by the master's options, or by the rendezvous endpoint."""
    address, port = options.master_addr, options.master_port
    if options.nnodes > 1 and options.rdzv_endpoint is None:
        address = address or host.environ.get("MASTER_ADDR") or None
    if options.rdzv_endpoint is None:
        return address, port
    name, _, text = options.rdzv_endpoint.rpartition(":")
    number = whole_number(text) if name else None
    return address or name or options.rdzv_endpoint, port or number or None


def _port_of_environment(host: Host) -> int | None:
    port = whole_number(host.environ.get("MASTER_PORT", "")) or 0
    return port if 0 < port < 65536 else None  # a check tells of anything else in the variable


NPROC = 8
"""Ranks on a host where nobody says otherwise: the GPUs of most machines that are rented by the hundred."""


def imagined_of(options: CheckOptions) -> Imagined | None:
    """The job that the script is to see; None where all of its ranks are real, UsageError where it cannot be."""
    if (size := options.world_size) is None:
        return None
    _refuse_others(options)
    nproc = min(options.nproc or NPROC, size)
    return Imagined(size, nproc, usual_ranks(size, nproc))


def usual_ranks(size: int, nproc: int) -> tuple[int, ...]:
    """A few ranks that differ in all that ranks differ in.

    The first two, the first of the second host, and the same counted from the end: so the mean of their numbers, and
    of whatever grows with a rank's number, is that of all ranks.
    """
    first = {rank for rank in (0, 1, nproc) if rank < size}
    return tuple(sorted(first | {size - 1 - rank for rank in first}))


def _refuse_others(options: CheckOptions) -> None:
    if not options.rehearse:
        raise UsageError("--world-size requires --rehearse")
    if options.nnodes > 1:
        raise UsageError("--world-size and --nnodes exclude each other: the hosts are simulated")
    if options.words and options.words[0] == "--":
        raise UsageError(
            "--world-size requires a script or a module, not a command line: ddpdoctor check --rehearse "
            "--world-size N train.py"
        )
