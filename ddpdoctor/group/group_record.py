"""What the live group left behind: one record a rank, as a check reads it. Plain data, no torch."""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ddpdoctor.blame.frames import Failure, Frame
from ddpdoctor.check import NotMeasured
from ddpdoctor.launch import Launch
from ddpdoctor.model import Evidence
from ddpdoctor.nodes.facts import NodeFacts
from ddpdoctor.nodes.links import Link


@dataclass(frozen=True)
class Measured:
    """What one measurement returned on one rank."""

    value: Mapping[str, Any]
    seconds: float = 0.0


@dataclass
class RankRecord:
    """One rank of the group. Of one that is still running, :class:`~ddpdoctor.group.rank_state.RankState` is one."""

    rank: int
    pid: int = 0
    host: str = ""
    measured: dict[str, Measured] = field(default_factory=dict)
    joined: bool = False
    finished: bool = False
    """Whether it reached the end of its script; what happens to the process after that is no finding."""
    failure: Failure | None = None
    died: float | None = None
    """When it was seen to be gone without a word, in seconds since the epoch."""
    exit_code: int | None = None
    """The exit status where it ended; negative for a signal; None while it lives, or where nobody saw."""
    current: str | None = None
    """The measurement that was begun and is not done."""
    step: str | None = None
    """The last step it announced, for instance ``all_reduce sum float32 8 MB``."""
    steps: int = 0
    """How many steps it announced in all, to tell who is behind."""
    stack: tuple[Frame, ...] = ()
    """Outermost first, below our own frames; taken where the group stopped answering."""

    @property
    def is_victim(self) -> bool:
        """Whether it failed because a peer was gone, or was stopped by the launcher for that reason."""
        return self.failure.of_a_victim if self.failure else self.exit_code == -signal.SIGTERM

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it; None where none did, or it failed by itself."""
        if self.failure or self.exit_code is None or self.exit_code >= 0:
            return None
        return -self.exit_code

    @property
    def broke_at(self) -> float:
        """When it failed or was seen dead, in seconds since the epoch."""
        return self.failure.time if self.failure else self.died or 0.0

    @property
    def order_of_blame(self) -> tuple[bool, bool, float]:
        """The least is that of the rank that broke first."""
        # Whose peer is gone has a peer that went: by SIGTERM from outside, where nobody broke by itself.
        return self.is_victim, self.is_victim and self.failure is not None, self.broke_at


class Stage(str, Enum):
    """How far the group got."""

    IMPORT = "import"
    """torch was being imported."""
    JOIN = "join"
    """The ranks were being started, or were joining the process group."""
    MEASURE = "measure"
    END = "end"


@dataclass(frozen=True)
class Wrong:
    """One collective that gave some ranks a wrong answer."""

    op: str
    dtype: str
    bytes: int
    elements: dict[int, tuple[int, Any, Any]]
    """By rank: the first wrong element, what it should be, what it is."""


@dataclass(frozen=True)
class GroupRecord:
    """The live group, as ``examine_group`` gets it."""

    launch: Launch
    ranks: tuple[RankRecord, ...] = ()
    backend: str = "gloo"
    torch: str = ""
    wanted: frozenset[str] = frozenset()
    """The measurements that were asked for."""
    stage: Stage = Stage.END
    broken: str | None = None
    """Why the group did not get to its end, in a clause; None where it did."""
    out_of_time: bool = False
    """Whether it was stopped by the time limit of the whole check, which is nobody's fault here."""
    unwritable: bool = False
    """Whether the run folder took no more, so that its ranks ended for our sake: the disk's check tells why."""
    hung: str | None = None
    """The measurement in which ranks stopped answering; at stage IMPORT, an import that went on."""
    port: int | None = None
    """At which its ranks met."""
    left_behind: tuple[str, ...] = ()
    """Processes, files and shared memory segments that outlived the group, a sentence each."""
    log: tuple[str, ...] = ()
    """The last lines that torch and the launcher wrote."""
    nccl: tuple[Evidence, ...] = ()
    """What NCCL_DEBUG said, as facts; empty on gloo."""
    stack_note: str | None = None
    """Why py-spy could not take the stacks, where it could not; then they are the interpreter's own."""
    seconds: float = 0.0
    nodes: tuple[NodeFacts, ...] = ()
    """The hosts that came, where there are several."""
    links: tuple[Link, ...] = ()
    """How they reach each other."""
    absent: tuple[int, ...] = ()
    """The nodes that never came."""
    lost: Mapping[int, str] = field(default_factory=dict)
    """The nodes that were gone before the end, and why, in a clause."""

    @property
    def node_names(self) -> dict[int, str]:
        """The host of each node that came, by its rank."""
        return {node.node_rank: node.host for node in self.nodes}

    def first_to_break(self) -> RankRecord | None:
        """The rank that failed or died before the others; a peer that says "closed by peer" is its victim."""
        broken = [rank for rank in self.ranks if rank.failure or rank.died]
        return min(broken, key=lambda rank: rank.order_of_blame, default=None)

    def values(self, measurement: str) -> dict[int, Mapping[str, Any]]:
        """A measurement's result by rank, complete. Raises NotMeasured where it was not asked for, or one lacks."""
        if measurement not in self.wanted:
            raise NotMeasured(f"{measurement} was not measured")
        values = {it.rank: it.measured[measurement].value for it in self.ranks if measurement in it.measured}
        if not values or len(values) < len(self.ranks):
            raise NotMeasured(self.broken or f"not every rank finished {measurement}")
        return values

    def wrong_answers(self) -> list[Wrong]:
        """The collectives that were wrong on any rank, in the order in which they were tried, the simplest first."""
        rows = {rank: value["rows"] for rank, value in sorted(self.values("collectives").items())}
        results = []
        for position, row in enumerate(next(iter(rows.values()), [])):
            wrong = {rank: row[position].get("wrong") for rank, row in rows.items()}
            elements = {rank: (w["index"], w["expected"], w["got"]) for rank, w in wrong.items() if w}
            if elements:
                results.append(Wrong(row["op"], row["dtype"], row["bytes"], elements))
        return results

    def require_right_answers(self) -> None:
        """For a check whose problem wrong answers would imitate: one cause, one finding. Raises NotMeasured where a
        collective gave a wrong answer; where collectives were not measured, nothing is known."""
        if "collectives" in self.wanted and (wrong := self.wrong_answers()):
            raise NotMeasured(f"{wrong[0].op} gives a wrong answer")

    @property
    def replicas_differ(self) -> bool:
        """Whether DDP itself was seen to leave replicas different."""
        measured = self.values("weights") if "weights" in self.wanted else {}
        return any(value["difference"] for value in measured.values())
