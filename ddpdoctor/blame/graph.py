"""Who waits for whom: ranks stand in meetings, and meetings wait for ranks.

A meeting is a collective of a group, or one end of a message. Ranks in an equal state are in one meeting, so that a
thousand of them cost no more than one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class End:
    """One end of a message."""

    operation: str
    """``send`` or ``recv``."""
    rank: int
    peer: int
    """As ranks of the job."""


@dataclass(frozen=True)
class Meeting:
    """What ranks wait in together."""

    group: Hashable = None
    """Whose collective it is; None where that is not known, or it is the default group."""
    number: int | None = None
    """Of the collective in its group, where it is known."""
    what: str = ""
    """The operation, where the number alone does not tell which collective it is."""
    end: End | None = None
    more: tuple[object, ...] = ()
    """What else ranks have to share to be in one collective together."""


@dataclass
class WaitGraph:
    """The wait-for graph of a job."""

    stands: Mapping[int, tuple[Meeting, ...]] = field(default_factory=dict)
    """In what each rank waits, oldest first; ranks that wait for no rank are not there."""
    late: Mapping[Meeting, tuple[int, ...]] = field(default_factory=dict)
    """The ranks without which a meeting does not end, and which have not come."""

    def sinks(self) -> list[int]:
        """The ranks that somebody waits for and that wait for no rank."""
        wanted = dict.fromkeys(rank for ranks in self.late.values() for rank in ranks)
        return [rank for rank in wanted if not self._waits(rank)]

    def _waits(self, rank: int) -> bool:
        return any(self.late[meeting] for meeting in self.stands.get(rank, ()))

    def knot(self) -> list[int]:
        """All ranks that wait for each other, and for nobody else; empty where there are none."""
        import networkx  # takes longer to import than all of a healthy job's judging

        graph = networkx.DiGraph()
        graph.add_nodes_from(self.late)
        for meeting, ranks in self.late.items():
            others = {other for rank in ranks for other in self.stands.get(rank, ())}
            graph.add_edges_from((meeting, other) for other in others)
        parts = [part for part in networkx.strongly_connected_components(graph) if len(part) > 1]
        last: set[Meeting] = next(
            (part for part in parts if all(set(graph[node]) <= part for node in part)), set()
        )
        return sorted(rank for rank, meetings in self.stands.items() if not last.isdisjoint(meetings))

    def circle(self, ranks: Iterable[int]) -> list[int]:
        """Ranks that wait each for the next, and the last for the first; empty where none do."""
        done: set[int] = set()
        for start in ranks:
            path: dict[int, None] = {}
            rank: int | None = start
            while rank is not None and rank not in done:
                if rank in path:
                    walked = list(path)
                    return walked[walked.index(rank) :]
                path[rank] = None
                wanted = (other for meeting in self.stands.get(rank, ()) for other in self.late[meeting])
                rank = next((other for other in wanted if other not in done), None)
            done.update(path)
        return []
