"""What is to be launched: read by host checks, obeyed by the launchers."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from typing import Any

DEFAULT_MASTER_PORT = 29500
"""The port that torchrun takes when none is given."""


UNNUMBERED = -1
"""The rank of a node that gets one when it meets the others."""


@dataclass(frozen=True)
class Imagined:
    """A job of which only some ranks are processes: what the script is to see."""

    world_size: int
    nproc: int
    """Ranks on each simulated host; the last one may have fewer."""
    ranks: tuple[int, ...]
    """The real ranks, in order."""


@dataclass(frozen=True)
class Launch:
    """The launch that is examined, in torchrun's terms. Times are in seconds."""

    nproc: int = 2
    """Ranks on this node (``--nproc-per-node``)."""
    nnodes: int = 1
    spare_nodes: int = 0
    """How many of the nodes need not come, or may be lost: with ``--nnodes MIN:MAX``, the difference."""
    max_restarts: int = 0
    """How often torchrun starts the ranks anew where one fails."""
    node_rank: int = 0
    backend: str = "gloo"
    master_addr: str = "127.0.0.1"
    master_port: int = DEFAULT_MASTER_PORT
    checkpoint_dir: str = field(default_factory=tempfile.gettempdir)
    rendezvous: tuple[tuple[str, str], ...] = ()
    """What torchrun was given as ``--rdzv-NAME VALUE``: backend, endpoint, id."""
    standalone: bool = False
    """Whether torchrun is to find a port by itself whatever else was given."""
    by_launch_line: bool = False
    """Whether a launch line starts the ranks; it chooses the master port."""
    timeout: float = 120.0
    """The time limit of the whole check."""
    imagined: Imagined | None = None
    """The job that the script is to see, where most of its ranks are not processes."""
    explicit: frozenset[str] = frozenset()
    """The fields that the user gave as an option; the others are defaults or come from the environment."""

    @property
    def finds_port(self) -> bool:
        """Whether torchrun is to take a free port by itself, which no other process can take in between."""
        chosen = self.rendezvous or self.explicit & {"master_addr", "master_port"}
        return self.standalone or (self.nnodes == 1 and not chosen)

    @property
    def listens_on_master_port(self) -> bool:
        """Whether rank 0 is to listen on the master port; a launch line on one node does on the port that it names."""
        if self.by_launch_line and self.nnodes == 1:
            return "master_port" in self.explicit
        return not self.finds_port and dict(self.rendezvous).get("backend", "static") in ("static", "c10d")

    @property
    def min_nodes(self) -> int:
        """The fewest nodes with which torchrun begins, and goes on."""
        return self.nnodes - self.spare_nodes

    @property
    def world_size(self) -> int:
        """All ranks of the job."""
        return self.nproc * self.nnodes

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks on this node, which has a number, by local rank; of an imagined job the real ones."""
        if self.imagined is not None:
            return self.imagined.ranks
        first = self.node_rank * self.nproc
        return tuple(range(first, first + self.nproc))

    def to_json(self) -> dict[str, Any]:
        """The launch as plain values, for a process that reads it from a file."""
        return {**asdict(self), "explicit": sorted(self.explicit)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Launch:
        """The launch that :meth:`to_json` wrote."""
        rendezvous = tuple((str(name), str(value)) for name, value in values.get("rendezvous", ()))
        if (imagined := values.get("imagined")) is not None:
            imagined = Imagined(imagined["world_size"], imagined["nproc"], tuple(imagined["ranks"]))
        typed = {"explicit": frozenset(values["explicit"]), "rendezvous": rendezvous, "imagined": imagined}
        return cls(**{**values, **typed})
