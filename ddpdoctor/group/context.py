"""What a measurement is given. Runs inside the ranks that we start, where torch may be imported."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ddpdoctor.launch import Launch


@dataclass(frozen=True)
class Context:
    """One rank's view of the live group, whose process group is initialised."""

    launch: Launch
    rank: int
    local_rank: int
    world_size: int
    device: torch.device
    """Where this rank's tensors live: its GPU under nccl, else the CPU."""
    folder: Path
    """The run folder, shared by the ranks of this host, removed after the run."""
    step: Callable[[str], None]
    """Announce what comes next; call it before each collective, so that a hang has a name."""
