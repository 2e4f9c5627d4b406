"""A job that stands still, by where each of its ranks is."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

from ddpdoctor.blame import causes
from ddpdoctor.blame.frames import Frame, show
from ddpdoctor.blame.hang_snapshot import HangSnapshot, SampledProcess
from ddpdoctor.blame.place import Place, PlaceKind, place_of
from ddpdoctor.blame.rank_state import RankState, WaitGraph
from ddpdoctor.blame.wording import doing, place_phrase
from ddpdoctor.model import Confidence, Evidence
from ddpdoctor.text import by_state, shorten

C = TypeVar("C", bound=causes.Cause)


class HangAnalysis:
    """What stacks tell of every rank of the job. What records and flight recorders tell besides, a subclass answers, or
    None where they do not. It was looked at ``out_of_time`` where the time for the examination was over."""

    def __init__(
        self, ranks: Mapping[int, RankState], snapshot: HangSnapshot, *, out_of_time: bool = False
    ) -> None:
        self.ranks, self.snapshot, self.out_of_time = ranks, snapshot, out_of_time
        self.here = {rank: it for rank, it in ranks.items() if it.left or it.place or it.stopped}
        self.waiting = tuple(rank for rank, state in ranks.items() if state.waits)

    @cached_property
    def graph(self) -> WaitGraph:
        """Of the ranks that were seen, or have left."""
        stands = {rank: (state.meeting,) for rank, state in self.here.items() if state.waits}
        first = {meeting: rank for rank, (meeting,) in reversed(stands.items())}
        late = {
            meeting: tuple(other for other in self._wanted(rank) if stands.get(other) != (meeting,))
            for meeting, rank in first.items()
        }
        return WaitGraph(stands, late)

    def _wanted(self, rank: int) -> Iterator[int]:
        """The ranks without which its wait does not end."""
        state = self.here[rank]
        peer = self._peer(state)
        if peer in self.here:
            return iter((peer,))
        members = self.here if state.group is None else state.group
        return (other for other in members if other in self.here and other != rank)

    @staticmethod
    def _peer(state: RankState) -> int:
        """The other end of the message in which a rank waits; -1 where it waits in none."""
        is_message = state.place is not None and state.place.kind is PlaceKind.PAIR
        return state.peer if is_message and state.peer is not None else -1

    def tell(self, kind: type[C], culprits: Iterable[int], **fields: Any) -> C:
        """A cause of this kind, at the line of the first culprit unless another is given."""
        ranks = tuple(culprits)
        # Of a rank that has called nothing, nothing is known.
        first = self.ranks.get(ranks[0]) if ranks else None
        return self.with_states(kind(culprits=ranks, **{"where": first.where if first else None, **fields}))

    def with_states(self, cause: C) -> C:
        """A cause with what was seen: who waits for the culprits, unless that is given, in what, and what all do."""
        waiting = cause.waiting or tuple(rank for rank in self.waiting if rank not in cause.culprits)
        states = (*cause.states, *self.states)
        return replace(cause, waiting=waiting, waits_in=self.waits_in(waiting), states=states)

    def waits_in(self, ranks: Iterable[int]) -> Place | None:
        """In what the first of these ranks waits that does."""
        return next((self.ranks[rank].place for rank in ranks if self.ranks[rank].waits), None)

    @cached_property
    def states(self) -> tuple[Evidence, ...]:
        """Where all ranks are, their stacks as a tree, and what could not be seen."""
        processes = {rank: state.process for rank, state in self.ranks.items() if state.process}
        stacks = {rank: process.stack for rank, process in processes.items() if process.stack}
        stuck = ((rank, it) for rank, state in self.ranks.items() if (it := state.stuck_worker))
        workers = [
            Evidence("\n".join([f"worker process {it.pid}:", *map(str, it.stack)]), (rank,))
            for rank, it in stuck
        ]
        unseen = {rank: shorten(process.unseen, 200) for rank, process in processes.items() if process.unseen}
        return (
            *self.short_states,
            *((Evidence(show(stacks)),) if stacks else ()),
            *workers[:1],
            *by_state(unseen),
            *(Evidence(sentence) for sentence in self.snapshot.unseen),
        )

    @property
    def short_states(self) -> tuple[Evidence, ...]:
        """What each rank does, equal states once."""
        places = {rank: state.where for rank, state in self.ranks.items()}
        return by_state({rank: doing(state) for rank, state in self.ranks.items()}, places=places)

    def stands_in(self, rank: int, kind: PlaceKind) -> bool:
        """Whether a rank is in such a place."""
        place = self.ranks[rank].place
        return place is not None and place.kind is kind

    def groups_differ(self) -> causes.Cause | None:
        """Whether ranks mean different groups by one name or position."""
        return None

    def calls_differ(self) -> causes.Cause | None:
        """Whether calls met each other and differ, before any rank was waited for."""
        return None

    def failed(self) -> causes.Cause | None:
        """Whether ranks have raised, and wait before their exception can end them."""
        return None

    def nobody_waits(self) -> causes.Cause | None:
        """Where no rank waits for another: all are blocked, or nothing is wrong."""
        blocked = [rank for rank, state in self.ranks.items() if state.blocked]
        everybody = blocked and all(state.left or rank in blocked for rank, state in self.ranks.items())
        return self._blocked(self._not_for_a_key(blocked) or blocked) if everybody else None

    def without_wait(self, ranks: Sequence[int]) -> causes.Cause:
        """Who is blocked comes before who works, and that before who has left."""
        blocked = [rank for rank in ranks if self.ranks[rank].blocked]
        at_work = [rank for rank in ranks if not self.ranks[rank].left and rank not in blocked]
        if by_itself := self._not_for_a_key(blocked):
            return self._blocked(by_itself)
        if at_work:
            return self._at_work(at_work)
        return self._blocked(blocked) if blocked else self.gone(ranks)

    def _not_for_a_key(self, ranks: Sequence[int]) -> list[int]:
        """Those that wait for no key of the store, which another of the ranks that are blocked would have set."""
        return [rank for rank in ranks if not self.stands_in(rank, PlaceKind.STORE)]

    def _blocked(self, ranks: Sequence[int]) -> causes.Cause:
        first = self.ranks[ranks[0]]
        worker = first.stuck_worker
        place = place_of(worker) if worker else None
        where = place.where if place and place.where else first.where
        return self.tell(causes.BlockedOutside, ranks, state=first, where=where)

    def _at_work(self, ranks: Sequence[int]) -> causes.Cause:
        first = self.ranks[ranks[0]]
        if not first.works:
            return self.tell(causes.IsElsewhere, ranks, state=first)
        seconds, timeout = self.snapshot.seconds, self.snapshot.timeout
        more = {"seconds": seconds, "timeout": timeout, "out_of_time": self.out_of_time}
        return self.tell(causes.WorksAlone, ranks, state=first, **more)

    def gone(self, ranks: Sequence[int]) -> causes.Cause:
        """Why ranks whose script ended with status 0 are missed by the others."""
        first, waits = self.ranks[ranks[0]], self.waits_in(self.waiting)
        where = first.left_at or (waits.where if waits else None)
        return self.tell(causes.EndedEarly, ranks, state=first, where=where)

    def knot(self, ranks: Sequence[int]) -> causes.Cause | None:
        """By all ranks that wait for each other."""
        return (
            self._no_partner(ranks)
            or self._groups_in_a_circle(ranks)
            or self.diverged(ranks)
            or self.by_dumps()
            or self._different_lines(ranks)
        )

    def diverged(self, ranks: Sequence[int]) -> causes.Cause | None:
        """What records tell of where these ranks diverged; None where they do not."""
        return None

    def by_dumps(self) -> causes.Cause | None:
        """What flight recorders tell."""
        return None

    def nobody_late(self) -> causes.Cause:
        """Where nobody is missing, as far as can be seen."""
        missing = [rank for rank in self.ranks if rank not in self.here]
        apart = not missing and len({state.where for state in self.here.values()}) > 1
        cause = (self.diverged(tuple(self.here)) if apart else None) or self.by_dumps()
        waits = self.waits_in(self.waiting)
        more = {"where": waits.where if waits else None, "confidence": Confidence.LIKELY}
        if cause is None and missing:
            return self.tell(causes.Unseen, missing, waiting=self.waiting, **more)
        if cause is None and apart:
            return self._different_lines(tuple(self.here))
        return cause or self.tell(causes.NobodyLate, (), what=place_phrase(waits), **more)

    def _no_partner(self, ranks: Sequence[int]) -> causes.Cause | None:
        """A message whose other end is in something else, or waits for a message itself, and so on."""
        peers = {rank: peer for rank in ranks if (peer := self._peer(self.ranks[rank])) in self.ranks}
        first = self.ranks[ranks[0]]
        if len(peers) == len(ranks) and first.place:
            return self.tell(causes.MessageCircle, ranks, what=first.place.what, peers=peers)
        for rank, peer in peers.items():
            place = self.ranks[rank].place
            if peer not in peers and self.ranks[peer].waits and place:
                others = tuple(other for other in ranks if other != peer)
                fields = {"rank": rank, "what": place.what, "at": place.where, "peer": self.ranks[peer]}
                return self.tell(causes.NoPartner, (peer,), waiting=others, **fields)
        return None

    def _groups_in_a_circle(self, ranks: Sequence[int]) -> causes.Cause | None:
        """Groups that share ranks, used in different orders."""
        states = {rank: self.ranks[rank] for rank in ranks}
        groups = {rank: (it.group, it.group_name) for rank, it in states.items() if it.group is not None}
        if len(groups) < len(ranks) or len(set(groups.values())) < 2:
            return None
        return self.tell(causes.GroupCircle, ranks, groups=groups)

    def _different_lines(self, ranks: Sequence[int]) -> causes.Cause:
        """What stacks support where no record tells: who waits in what."""
        by_line: dict[tuple[object, ...], list[int]] = {}
        known = {rank: at for rank in ranks if self.ranks[rank].waits and (at := self.ranks[rank].place)}
        for rank, place in known.items():
            by_line.setdefault((place.title, place.where), []).append(rank)
        most, *fewer = sorted(by_line.values(), key=len, reverse=True)
        few = sorted(rank for some in fewer for rank in some)
        culprits = few if few and len(most) > len(few) else sorted(known)
        places = tuple((tuple(some), known[some[0]]) for some in sorted(by_line.values()))
        waiting = tuple(rank for rank in sorted(known) if rank not in culprits)
        more = {"waiting": waiting, "places": places, "confidence": Confidence.LIKELY}
        return self.tell(causes.DifferentLines, culprits, **more)


def late_ranks(stacks: Mapping[int, Sequence[Frame]], progress: Mapping[int, int]) -> tuple[int, ...]:
    """The ranks that the others wait for; none where all wait alike, which points at what is between them.

    Args:
        stacks: each stopped rank's stack, outermost frame first; empty where it showed none, as a process that
            SIGSTOP halted does.
        progress: how many steps each rank took; the rank behind is the one that never came.
    """
    places = {rank: place_of(SampledProcess(0, rank, stack=tuple(it))) for rank, it in sorted(stacks.items())}
    least = min(progress.values(), default=0)
    for suspects in (
        tuple(rank for rank, place in places.items() if place and not place.waits),
        tuple(rank for rank, place in places.items() if place is None),
        tuple(rank for rank, steps in sorted(progress.items()) if steps == least),
    ):
        if suspects and len(suspects) < len(stacks):
            return suspects
    return ()


def cause_of(job: HangAnalysis) -> causes.Cause | None:
    """The one cause of a hang; None where there is none, or where no rank waits in vain.

    Who is stuck is usually the victim. The blame follows the waits: to ranks that wait for no rank, which are blocked,
    at work, gone or out of sight; or, where all wait for each other, to the first position at which they diverged.
    """
    # A rank that failed, or that we ended, tells what happened, and the others are its victims.
    if any(state.failed or state.left == "shortened" for state in job.ranks.values()):
        return None
    apart = job.groups_differ() or job.calls_differ()
    if apart:
        return apart
    graph = job.graph
    if not graph.stands:
        return job.nobody_waits()
    sinks = graph.sinks()
    without_wait = [rank for rank in sinks if rank not in graph.stands]
    if without_wait:
        return job.without_wait(without_wait)
    knot = [] if sinks else graph.knot()
    return job.failed() or (job.knot(knot) if knot else None) or job.nobody_late()
