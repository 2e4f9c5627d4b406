"""What the live group left behind: one record a rank, as a check reads it. Plain data, no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Evidence
from ddpdoctor.plan import Plan


@dataclass(frozen=True)
class Failure:
    """An exception in a rank."""

    type: str
    message: str
    traceback: str
    time: float
    """Seconds since the epoch, to tell who failed first."""


@dataclass(frozen=True)
class Measured:
    """One measurement on one rank."""

    value: Mapping[str, Any] | None = None
    """What it returned; None while it is not done."""
    failure: Failure | None = None
    step: str | None = None
    """The last step it announced, for instance ``all_reduce sum float32 8 MB``."""
    seconds: float = 0.0


@dataclass(frozen=True)
class Frame:
    """One Python or native frame of a stack."""

    function: str
    file: str
    line: int


@dataclass(frozen=True)
class RankRecord:
    """One rank of the group."""

    rank: int
    pid: int = 0
    host: str = ""
    measured: Mapping[str, Measured] = field(default_factory=dict)
    finished: bool = False
    """Whether it reached the end of its script; what happens to the process after that is no finding."""
    exit_code: int | None = None
    """The exit status where it ended; negative for a signal; None while it lives, or where nobody saw."""
    stack: tuple[Frame, ...] = ()
    """Outermost first; taken where the group stopped answering."""

    @property
    def current(self) -> str | None:
        """The measurement that was begun and is not done."""
        return next((name for name, one in self.measured.items() if one.value is None), None)


@dataclass(frozen=True)
class PortUse:
    """What became of the rendezvous port. errno values, 0 for free; None where it was not looked at."""

    port: int
    before: int | None = None
    during: int | None = None
    after: int | None = None


@dataclass(frozen=True)
class GroupRecord:
    """The live group, as ``examine_group`` gets it."""

    plan: Plan
    ranks: tuple[RankRecord, ...] = ()
    backend: str = "gloo"
    torch: str = ""
    wanted: frozenset[str] = frozenset()
    """The measurements that were asked for."""
    broken: str | None = None
    """Why the group did not get to its end, in a clause; None where it did."""
    hung: str | None = None
    """The measurement in which ranks stopped answering."""
    deadline: float = 0.0
    """Seconds that the hung measurement was given."""
    port: PortUse | None = None
    left_behind: tuple[str, ...] = ()
    """Processes, files and shared memory segments that outlived the group, a sentence each."""
    log: tuple[str, ...] = ()
    """The last lines that torch and the launcher wrote."""
    nccl: tuple[Evidence, ...] = ()
    """What NCCL_DEBUG said, as facts; empty on gloo."""
    seconds: float = 0.0

    def values(self, measurement: str) -> dict[int, Mapping[str, Any]]:
        """A measurement's result by rank, complete.

        Raises:
            NotMeasured: it was not asked for, or not every rank returned one.
        """
        if measurement not in self.wanted:
            raise NotMeasured(f"{measurement} was not measured")
        found = {rank.rank: rank.measured.get(measurement, Measured()).value for rank in self.ranks}
        if self.broken and (not found or any(value is None for value in found.values())):
            raise NotMeasured(self.broken)
        return {rank: value for rank, value in found.items() if value is not None}
