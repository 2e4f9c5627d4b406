"""Where one rank of a job that stands still is, what it does there, and who waits for whom.

Ranks stand in meetings, and meetings wait for ranks. A meeting is a collective of a group, or one end of a message.
Ranks in an equal state are in one meeting, so that a thousand of them cost no more than one.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from ddpdoctor.blame.frames import function
from ddpdoctor.blame.hang_snapshot import Doing, SampledProcess
from ddpdoctor.blame.place import Place, PlaceKind
from ddpdoctor.model import Where


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
        return [rank for rank in wanted if not any(self.late[it] for it in self.stands.get(rank, ()))]

    def knot(self) -> list[int]:
        """All ranks that wait for each other, and for nobody else; empty where there are none."""
        import networkx  # takes longer to import than all of a healthy job's judging

        graph = networkx.DiGraph()
        graph.add_nodes_from(self.late)
        for meeting, ranks in self.late.items():
            others = {other for rank in ranks for other in self.stands.get(rank, ())}
            graph.add_edges_from((meeting, other) for other in others)
        parts = [part for part in networkx.strongly_connected_components(graph) if len(part) > 1]
        ends = (part for part in parts if all(set(graph[node]) <= part for node in part))
        last: set[Meeting] = next(ends, set())
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


_WORKS = (Doing.COMPUTES, Doing.DISK, Doing.SLEEPS)


@dataclass(frozen=True)
class RankState:
    """One rank, by its stack, by its record, or as one that has left."""

    rank: int
    place: Place | None = None
    """None where neither stack nor record tells."""
    process: SampledProcess | None = None
    workers: tuple[SampledProcess, ...] = ()
    left: str = ""
    """How it ended, with status 0: ``returned``, ``exit``, ``os._exit``; empty where it did not."""
    left_at: Where | None = None
    failed: bool = False
    last: str = ""
    """What it did last, for a sentence, where no more is known."""
    group: tuple[int, ...] | None = None
    """The members of the group in whose collective it waits; None for every rank."""
    group_name: str = ""
    """The name of that group, where it is known: groups may have equal members."""
    peer: int | None = None
    """The other end of the message in which it waits."""
    number: int | None = None
    """Of the collective in which it waits, in its group."""
    tensor: tuple[object, ...] = ()
    """The shape and type of what it gave, where all ranks have to give alike."""

    @property
    def waits(self) -> bool:
        """Whether it waits for other ranks, by what can be seen."""
        return not self.left and not self.stopped and self.place is not None and self.place.waits

    @property
    def stopped(self) -> bool:
        """Whether a signal or a debugger holds it."""
        return self.process is not None and self.process.doing is Doing.STOPPED

    @property
    def works(self) -> bool:
        """Whether it was seen to work, or to sleep."""
        return self.process is not None and self.process.doing in _WORKS

    @property
    def blocked(self) -> bool:
        """Whether it waits for something that is no rank."""
        if self.stopped:
            return True
        if self.left or self.place is None or self.place.waits:
            return False
        if self.place.blocks:
            return True
        process = self.process
        if process is None or process.doing in (Doing.COMPUTES, Doing.DISK):
            return False
        in_a_sample = self.place.fetching and process.doing is Doing.SLEEPS
        return in_a_sample or (process.doing is Doing.WAITS and process.stands)

    @property
    def where(self) -> Where | None:
        """The innermost line of the script's own."""
        return self.place.where if self.place else None

    @property
    def meeting(self) -> Meeting:
        """What it waits in, as all ranks have it that wait in the same."""
        assert self.place is not None
        kind, what = self.place.kind, self.place.what
        if kind is PlaceKind.PAIR:
            end = End(what, self.rank, -1 if self.peer is None else self.peer)
            return Meeting(self.group, what=what, end=end)
        more = (kind, self.group_name, self.place.peer, *self.tensor)
        return Meeting(self.group, self.number, what, more=more)

    @property
    def stuck_worker(self) -> SampledProcess | None:
        """The DataLoader worker for which it waits, stopped or in the script's code; None where none is seen to be."""
        if self.place is None or self.place.kind is not PlaceKind.LOADER:
            return None
        stopped = (worker for worker in self.workers if worker.doing is Doing.STOPPED)
        return next(stopped, None) or next(filter(is_loading, self.workers), None)


def is_loading(worker: SampledProcess) -> bool:
    """Whether a worker fetches a sample: one that has nothing to do waits in its loop for an index."""
    names = {function(frame) for frame in worker.stack if "torch/utils/data/" in frame.file}
    return "_worker_loop" in names and bool(names - {"_worker_loop"}) and "fetch" in names
