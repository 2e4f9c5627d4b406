"""What is to be launched: read by host checks, obeyed by the launchers."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from typing import Any

DEFAULT_MASTER_PORT = 29500
"""The port that torchrun takes when none is given."""


@dataclass(frozen=True)
class Launch:
    """The launch that is examined, in torchrun's terms. Times are in seconds."""

    nproc: int = 2
    """Ranks on this node (``--nproc-per-node``)."""
    nnodes: int = 1
    node_rank: int = 0
    backend: str = "gloo"
    master_addr: str = "127.0.0.1"
    master_port: int = DEFAULT_MASTER_PORT
    checkpoint_dir: str = field(default_factory=tempfile.gettempdir)
    rendezvous: tuple[tuple[str, str], ...] = ()
    """What torchrun was given as ``--rdzv-NAME VALUE``: backend, endpoint, id."""
    standalone: bool = False
    """Whether torchrun is to find a port by itself whatever else was given."""
    timeout: float = 120.0
    """The time limit of the whole check."""
    explicit: frozenset[str] = frozenset()
    """The fields that the user gave as an option; the others are defaults or come from the environment."""

    @property
    def world_size(self) -> int:
        """All ranks of the job."""
        return self.nproc * self.nnodes

    def to_json(self) -> dict[str, Any]:
        """The launch as plain values, for a process that reads it from a file."""
        return {**asdict(self), "explicit": sorted(self.explicit)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Launch:
        """The launch that :meth:`to_json` wrote."""
        rendezvous = tuple((str(name), str(value)) for name, value in values.get("rendezvous", ()))
        return cls(**{**values, "explicit": frozenset(values["explicit"]), "rendezvous": rendezvous})
