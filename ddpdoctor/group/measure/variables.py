"""torchrun's variables and the versions, as each rank sees them, beside what the process group says."""

import os
import platform
import socket
from typing import Any

import torch
import torch.distributed as dist

from ddpdoctor.group.context import Context
from ddpdoctor.group.rank_variables import EXPECTED

SECONDS = 10.0
NAMES = (*EXPECTED, "GROUP_RANK")


def measure(context: Context) -> dict[str, Any]:
    """``in_store`` is the RANK that the process at each place of the group has told the others."""
    variables = {name: os.environ[name] for name in NAMES if name in os.environ}
    context.publish(f"variables/{dist.get_rank()}", variables.get("RANK"))
    context.step("the store: RANK of every rank")
    return {
        "variables": variables,
        "rank": dist.get_rank(),
        "world_size": dist.get_world_size(),
        "in_store": context.read_all("variables"),
        "host": socket.gethostname(),
        "versions": versions(),
    }


def versions() -> dict[str, str | None]:
    """None where this torch is built without it. Asking NCCL for its version touches no GPU."""
    nccl = None
    if dist.is_nccl_available():
        nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
    return {
        "torch": torch.__version__,
        "NCCL": nccl,
        "CUDA": torch.version.cuda,
        "Python": platform.python_version(),
    }
