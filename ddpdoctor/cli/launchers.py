"""The launch of a command that a launcher starts once on each host: what options do not say, its variables do."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.option import NodeCount
from ddpdoctor.cli.options import LaunchOptions
from ddpdoctor.host.known_variables import whole_number
from ddpdoctor.recorder.launchers import LAUNCHERS, Launcher

_O = TypeVar("_O", bound=LaunchOptions)
_FIRST = re.compile(r"(?P<prefix>[^\[,]+)(?:\[(?P<number>\d+)[^\]]*\](?P<suffix>[^,]*))?")
_URI = re.compile(r"tcp://(?P<address>[^,:;]+)")
_OPTIONS_OF_TORCHRUN = {
    "PET_NODE_RANK": "node_rank",
    "PET_NPROC_PER_NODE": "nproc",
    "PET_MASTER_ADDR": "master_addr",
    "PET_MASTER_PORT": "master_port",
    "PET_RDZV_BACKEND": "rdzv_backend",
    "PET_RDZV_ENDPOINT": "rdzv_endpoint",
    "PET_RDZV_ID": "rdzv_id",
    "PET_RDZV_CONF": "rdzv_conf",
    "PET_MAX_RESTARTS": "max_restarts",
}
"""Variables of which torchrun takes its defaults, and the options that they stand for."""
_NUMBERS = ("node_rank", "nproc", "master_port", "max_restarts")


@dataclass(frozen=True)
class _Started:
    """How often a launcher started this command."""

    tasks: int
    nodes: int
    number: int
    """Of this host."""
    address: str | None
    """Of node 0."""
    once: str
    """The launcher's options that start it once on each host."""


def with_launcher(options: _O, environ: Mapping[str, str]) -> _O:
    """The options with the hosts on which a launcher started this command, where they name none; UsageError where it
    started it more than once on a host, or for a changing number of hosts."""
    if options.nnodes > 1 or options.rendezvous or options.standalone:
        return options
    if environ.get("PET_NNODES"):
        return _with_defaults_of_torchrun(options, environ)
    by_launchers = (_by(launcher, environ) for launcher in LAUNCHERS if launcher.once)
    started = _by_operator(environ) or next(filter(None, by_launchers), None)
    return _with_hosts(options, started) if started and started.nodes > 1 else options


def _with_hosts(options: _O, started: _Started) -> _O:
    if started.tasks != started.nodes:
        raise UsageError(
            f"{started.once.partition(' ')[0]} starts this command {started.tasks} times on {started.nodes} nodes; "
            f"it has to run once on each: {started.once} ddpdoctor ..."
        )
    address = options.master_addr or started.address
    return replace(
        options, nodes=NodeCount(started.nodes, started.nodes), node_rank=started.number, master_addr=address
    )


def _with_defaults_of_torchrun(options: _O, environ: Mapping[str, str]) -> _O:
    try:
        nodes = NodeCount.parse(environ["PET_NNODES"])
    except ValueError:
        raise UsageError(
            f"PET_NNODES={environ['PET_NNODES']} is not a number of hosts: ddpdoctor check --nnodes N ..."
        ) from None
    given: dict[str, Any] = {}
    for variable, name in _OPTIONS_OF_TORCHRUN.items():
        if (value := environ.get(variable)) and getattr(options, name) is None:
            number = whole_number(value) if name in _NUMBERS else value
            given[name] = number  # "auto" and "gpu" are not numbers: as many as there are GPUs
    return replace(options, nodes=nodes, **given)


def _by_operator(environ: Mapping[str, str]) -> _Started | None:
    """In a pod of a PyTorchJob, whose operator sets them for one process in each."""
    number, size = _number(environ, "RANK"), _number(environ, "WORLD_SIZE")
    in_pod = "KUBERNETES_SERVICE_HOST" in environ and "LOCAL_RANK" not in environ
    if not in_pod or number is None or size is None or "MASTER_ADDR" not in environ:
        return None
    return _Started(size, size, number, environ["MASTER_ADDR"], "")


def _by(launcher: Launcher, environ: Mapping[str, str]) -> _Started | None:
    """By srun, or Open MPI, whose mpirun runs on the host of rank 0 unless an option says otherwise."""
    of_tasks, of_nodes, of_address = launcher.step
    tasks, rank = _number(environ, of_tasks), _number(environ, launcher.rank[0])
    on_host = _number(environ, *launcher.local_size)
    nodes = _number(environ, of_nodes) or (tasks // on_host if tasks and on_host else None)
    # In the script of sbatch they speak of the whole job.
    is_step = not of_nodes or launcher.job[-1] in environ
    if nodes is None or rank is None or not is_step:
        return None
    number = _number(environ, *launcher.node[:1]) if of_nodes else rank
    if number is None:
        return None
    address = (None if of_nodes else environ.get("MASTER_ADDR")) or first_host(environ.get(of_address, ""))
    return _Started(tasks or nodes, nodes, number, address, launcher.once.format(nodes=nodes))


def _number(environ: Mapping[str, str], name: str = "") -> int | None:
    return whole_number(environ.get(name, ""))


def first_host(names: str) -> str | None:
    """The first of a list of hosts as Slurm writes it, ``node[03-06,9],gpu1`` begins with ``node03``; or of a URI."""
    if uri := _URI.search(names):
        return uri["address"]
    if (match := _FIRST.match(names)) is None:
        return None
    return f"{match['prefix']}{match['number'] or ''}{match['suffix'] or ''}"
