"""The launch of a command that srun starts once on each host: what its options do not say, Slurm's variables do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import LaunchOptions
from ddpdoctor.host.known_variables import whole_number

_O = TypeVar("_O", bound=LaunchOptions)
_FIRST = re.compile(r"(?P<prefix>[^\[,]+)(?:\[(?P<number>\d+)[^\]]*\](?P<suffix>[^,]*))?")


def with_step(options: _O, environ: Mapping[str, str]) -> _O:
    """The options with the hosts of the step that srun runs, where they name none.

    Raises:
        UsageError: srun starts the command more than once on a host.
    """
    nodes = whole_number(environ.get("SLURM_STEP_NUM_NODES", "")) or 1
    number = whole_number(environ.get("SLURM_NODEID", ""))
    chosen = options.nnodes > 1 or options.master_addr or options.rendezvous or options.standalone
    if nodes < 2 or number is None or chosen or not is_step(environ):
        return options
    tasks = whole_number(environ.get("SLURM_STEP_NUM_TASKS", "")) or nodes
    if tasks != nodes:
        raise UsageError(
            f"srun starts this command {tasks} times on {nodes} nodes; it has to run once on each: "
            f"srun --nodes {nodes} --ntasks-per-node 1 ddpdoctor ..."
        )
    address = first_host(environ.get("SLURM_STEP_NODELIST", ""))
    return replace(options, nnodes=nodes, node_rank=number, master_addr=address)


def is_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process; in the script of sbatch the same variables speak of the whole job."""
    return "SLURM_STEP_ID" in environ and "SLURM_PROCID" in environ


def first_host(names: str) -> str | None:
    """The first of a list of hosts as Slurm writes it: ``node[03-06,9],gpu1`` begins with ``node03``."""
    match = _FIRST.match(names)
    if match is None:
        return None
    return f"{match['prefix']}{match['number'] or ''}{match['suffix'] or ''}"
