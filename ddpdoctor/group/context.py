"""What a measurement is given. Runs inside the ranks that we start, where torch may be imported."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.distributed_c10d import _get_default_store

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

    # Small values between ranks without a collective, through the store that the rendezvous left behind.

    def publish(self, key: str, value: Any) -> None:
        """Leave a value that JSON can hold for the other ranks; it is there when this returns."""
        _get_default_store().set(f"ddpdoctor/{key}", json.dumps(value))
        self.is_published(key)  # set() does not wait for the store, and the answer comes after it

    def read(self, key: str) -> Any:
        """What another rank published, waiting until it has."""
        return json.loads(_get_default_store().get(f"ddpdoctor/{key}"))

    def read_all(self, key: str) -> list[Any]:
        """What every rank published, each with its number behind the key."""
        return [self.read(f"{key}/{rank}") for rank in range(self.world_size)]

    def is_published(self, key: str) -> bool:
        return bool(_get_default_store().check([f"ddpdoctor/{key}"]))
