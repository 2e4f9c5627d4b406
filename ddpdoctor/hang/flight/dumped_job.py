"""Why a job stands still, from the dumps of its flight recorders alone.

A rank that stands in a collective waits for every member of its group that has not come to that collective. The
majority is usually the victim, so numbers do not vote, but where ranks disagree about what to call.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from ddpdoctor.blame.causes import (
    CallCircle,
    CalledAlone,
    Cause,
    DivergentCall,
    GroupsDisagree,
    LeftCallOut,
    LeftNoDump,
    Mismatch,
    NeverCame,
    NobodyLate,
)
from ddpdoctor.blame.frames import is_of_script, where_of
from ddpdoctor.blame.hang_analysis import HangAnalysis
from ddpdoctor.blame.hang_snapshot import Dump, Entry, HangSnapshot
from ddpdoctor.blame.place import Place, PlaceKind
from ddpdoctor.blame.rank_state import End, Meeting, RankState, WaitGraph
from ddpdoctor.blame.wording import at
from ddpdoctor.hang.flight.dumped_groups import (
    FirstMismatch,
    ProcessGroup,
    call_phrase,
    differ,
    first_mismatch,
    process_groups_of,
)
from ddpdoctor.hang.flight.reading import entry as read_again
from ddpdoctor.model import Confidence, Evidence, Where

CAUSES = (
    *(CallCircle, CalledAlone, GroupsDisagree, LeftCallOut),
    *(LeftNoDump, Mismatch, NeverCame, NobodyLate),
)
"""What dumps can show."""
_OTHER_END = {"send": "recv", "recv": "send"}


class DumpedJob(HangAnalysis):
    """A job of which nothing is known but dumps by rank, and its size where groups do not tell their members."""

    def __init__(self, dumps: Mapping[int, Dump], world_size: int | None = None) -> None:
        self.dumps = dumps
        self.groups = process_groups_of(dumps, world_size)
        self.entries = {rank: held for rank, dump in sorted(dumps.items()) if (held := self._entries(dump))}
        late = [rank for rank in self.graph.sinks() if rank not in self.entries]
        states = {rank: self._rank_state(rank) for rank in sorted([*self.entries, *late])}
        super().__init__(states, HangSnapshot())

    def _rank_state(self, rank: int, entry: Entry | None = None) -> RankState:
        """By the oldest thing in which it stands, unless another is given; else by its last call."""
        if rank not in self.dumps:
            return RankState(rank, last="left no dump")
        entry = entry or next(iter(self.entries.get(rank, {}).values()), None)
        if entry is not None:
            kind = PlaceKind.COLLECTIVE if entry.peer is None else PlaceKind.PAIR
            return RankState(rank, Place(kind, self._title(entry), _line(entry)))
        if (last := _last(self.dumps[rank])) is None:
            return RankState(rank, last="came to no collective")
        return RankState(rank, last=f"came last to {self._title(last)}{at(_line(last))}")

    def _entries(self, dump: Dump) -> dict[Meeting, Entry]:
        """In what a rank stands, oldest first, peers as ranks of the job."""
        entries: dict[Meeting, Entry] = {}
        for entry in dump.waits:
            if (group := self.groups.of_rank.get((dump.rank, entry.group))) and entry.peer is None:
                entries[Meeting(group, entry.number)] = entry
            elif group and entry.peer is not None and entry.peer < len(group.members):  # else it is broken
                end = End(entry.operation, entry.rank, group.members[entry.peer])
                entries[Meeting(group, entry.turn, end=end)] = replace(entry, peer=end.peer)
        return entries

    @cached_property
    def graph(self) -> WaitGraph:
        """Of all ranks that stand in something."""
        first: dict[Meeting, Entry] = {}
        for meetings in self.entries.values():
            for meeting, entry in meetings.items():
                first.setdefault(meeting, entry)
        late = {meeting: self._late(meeting, entry) for meeting, entry in first.items()}
        return WaitGraph({rank: tuple(meetings) for rank, meetings in self.entries.items()}, late)

    def _late(self, meeting: Meeting, entry: Entry) -> tuple[int, ...]:
        if meeting.end:
            return () if self._partner_came(meeting, meeting.end, entry) else (meeting.end.peer,)
        group, number = _group_of(meeting), meeting.number or 0
        came = {rank: dump.came_to(group.name) for rank, dump in self.dumps.items()}
        return tuple(rank for rank in group.members if came.get(rank, -1) < number)

    def _partner_came(self, meeting: Meeting, end: End, entry: Entry) -> bool:
        """Whether the other end was issued: it stands there too, or was counted.

        Where a ring has dropped some, nothing can be counted: what completed belongs to another, unless it was issued
        together with what did not.
        """
        if (other := self.dumps.get(end.peer)) is None:
            return False
        if self._other_end(meeting, end) is not None:
            return True
        if other.wrapped or self.dumps[end.rank].wrapped:
            return entry.batched
        key = (entry.group, _OTHER_END[end.operation], _group_of(meeting).members.index(end.rank))
        return other.traffic.get(key, 0) >= entry.turn

    def _other_end(self, meeting: Meeting, end: End) -> Entry | None:
        """The send of a receive, or the receive of a send, in which the other rank stands; None where it does not."""
        group = _group_of(meeting)
        wanted = (group.name, _OTHER_END[end.operation], group.members.index(end.rank))
        waits = self.dumps[end.peer].waits if end.peer in self.dumps else ()
        return next((entry for entry in waits if (entry.group, entry.operation, entry.peer) == wanted), None)

    def groups_differ(self) -> Cause | None:
        """Ranks that know different members of one group."""
        if (disagreement := self.groups.disagreement) is None:
            return None
        known = sorted(disagreement.known.items(), key=lambda pair: -len(pair[1]))
        (_, most), (_, fewer), *_ = known
        divided = len(most) == len(fewer)
        culprits = () if divided else tuple(sorted(rank for _, ranks in known[1:] for rank in ranks))
        where = self._last_line(culprits or fewer)
        return self.tell(GroupsDisagree, culprits, group=disagreement.name, known=tuple(known), where=where)

    def calls_differ(self) -> Cause | None:
        """The first mismatch of a group in which somebody waits, or of any where nobody does. One that comes after a
        collective to which a rank never came did not bring the wait about."""
        late = {meeting: ranks for meeting, ranks in self.graph.late.items() if not meeting.end}
        waited = {meeting.group for meeting in late}
        missed: dict[object, int] = {}
        for meeting in (waited_in for waited_in, ranks in late.items() if ranks):
            number = meeting.number or 0
            missed[meeting.group] = min(number, missed.get(meeting.group, number))
        for group in dict.fromkeys(self.groups.of_rank.values()):
            if self.entries and group not in waited:
                continue
            mismatch = first_mismatch(group, self.dumps)
            if mismatch and mismatch.number <= missed.get(group, mismatch.number):
                return self._of_mismatch(mismatch)
        return None

    def _of_mismatch(self, mismatch: FirstMismatch) -> Cause:
        group, number = mismatch.group, mismatch.number
        shown = [ranks[0] for ranks in mismatch.calls.values()][:8]
        read = {rank: read_again(self.dumps[rank], group.name, number) for rank in shown}
        (most, majority), (call, fewer), *_ = mismatch.calls.items()
        culprits = mismatch.culprits
        fields: dict[str, Any] = {
            "position": f"position {number} of {group.title}",
            "where": _line(read.get(fewer[0])) or _line(read.get(majority[0])),
            "states": _called(mismatch.calls, read),
        }
        if mismatch.skipped:
            skipped = call_phrase(mismatch.skipped)
            return self.tell(LeftCallOut, culprits, call=skipped, others=majority, **fields)
        others = DivergentCall(majority, call_phrase(most))
        if mismatch.extra:
            return self.tell(CalledAlone, culprits, call=call_phrase(mismatch.extra), others=others, **fields)
        first = DivergentCall(culprits or fewer, call_phrase(call))
        return self.tell(Mismatch, culprits, first=first, second=others, **fields)

    def without_wait(self, ranks: Sequence[int]) -> Cause:
        """Named is the meeting in which most ranks wait for them directly."""
        outside = tuple(sorted(ranks))
        direct = Counter(
            meeting
            for meetings in self.entries.values()
            for meeting in meetings
            if not set(outside).isdisjoint(self.graph.late[meeting])
        )
        meeting = direct.most_common(1)[0][0]
        here = tuple(rank for rank, meetings in self.entries.items() if meeting in meetings)
        missing = [rank for rank in outside if rank not in self.dumps]
        self._show(meeting)
        return self.tell(
            LeftNoDump if len(missing) == len(outside) else NeverCame,
            outside,
            what=self._what(meeting, here),
            here=here,
            end=meeting.end.operation if meeting.end else "",
            where=self._last_line(outside) or _line(self.entries[here[0]][meeting]),
            confidence=Confidence.LIKELY if missing else Confidence.CERTAIN,
        )

    def knot(self, ranks: Sequence[int]) -> Cause | None:
        circle = self.graph.circle(self.graph.stands)
        return self._circle(circle) if circle else None

    def nobody_late(self) -> Cause:
        sinks = self.graph.sinks()
        first = sinks[0] if sinks else next(iter(self.entries))
        return (None if sinks else self._crossed()) or self._stuck(first)

    def _crossed(self) -> Cause | None:
        """All were called everywhere, without waiting for them, but not in one order, and so they block each other."""
        firsts = {rank: next(iter(meetings)) for rank, meetings in self.entries.items()}
        late = {
            meeting: tuple(
                rank
                for rank in _group_of(meeting).members
                if rank in firsts and firsts[rank] != meeting and meeting in self.entries[rank]
            )
            for meeting in dict.fromkeys(firsts.values())
        }
        behind = WaitGraph({rank: (meeting,) for rank, meeting in firsts.items()}, late)
        circle = behind.circle(firsts)
        return self._circle(circle) if circle else None

    def _circle(self, ranks: list[int]) -> Cause:
        """Whoever uses groups in another order than most is to blame; all of the circle where there is no most."""
        firsts = {rank: next(iter(meetings)) for rank, meetings in self.entries.items()}
        sides = Counter(firsts.values())
        (least, fewest), *others = sorted(
            ((meeting, sides[meeting]) for meeting in {firsts[rank] for rank in ranks}),
            key=lambda pair: pair[1],
        )
        culprits = sorted(ranks)
        if others and fewest < others[0][1] and not least.end:
            culprits = [rank for rank, meeting in firsts.items() if meeting == least]
        self._show(firsts[ranks[0]])
        first, *more = culprits
        mine = self.ranks[first].place
        other = more[0] if more else next(rank for rank in self.entries if self.ranks[rank].place != mine)
        titles = {rank: self._what_of(rank) for rank in (first, other)}
        return self.tell(CallCircle, culprits, first=titles[first], other=other, its_place=titles[other])

    def _stuck(self, rank: int) -> Cause:
        """Everybody came; of a send and its receive, with different tensors."""
        meeting, entry = next(iter(self.entries[rank].items()))
        self._show(meeting)
        other = self._other_end(meeting, meeting.end) if meeting.end else None
        if other is not None:
            calls = [f"{half.operation} {half.shapes} {half.dtypes}" for half in (other, entry)]
            if differ([call.partition(" ")[2] for call in calls]):
                first = DivergentCall((other.rank,), call_phrase(calls[0]))
                second = DivergentCall((rank,), call_phrase(calls[1]))
                by_call = {calls[1]: (rank,), calls[0]: (other.rank,)}
                states = _called(by_call, {rank: entry, other.rank: other})
                where = _line(other) or _line(entry)
                return self.tell(Mismatch, (), first=first, second=second, where=where, states=states)
        waits = self.waits_in(self.entries)
        where = waits.where if waits else None
        what = self._what(meeting, self.entries)
        return self.tell(NobodyLate, (), what=what, where=where, confidence=Confidence.LIKELY)

    def _show(self, meeting: Meeting) -> None:
        """Of a rank that stands in several things, show this one."""
        known = {rank: entries.get(meeting) for rank, entries in self.entries.items()}
        self.ranks = {rank: self._rank_state(rank, known.get(rank)) for rank in self.ranks}

    def _what(self, meeting: Meeting, ranks: Iterable[int]) -> str:
        """``all_reduce 10 of the default group``."""
        by_meeting = self.entries[next(iter(ranks))]
        operation = by_meeting.get(meeting, next(iter(by_meeting.values()))).operation
        return f"{operation}{'' if meeting.end else f' {meeting.number}'} of {_group_of(meeting).title}"

    def _what_of(self, rank: int) -> str:
        place = self.ranks[rank].place
        return place.what if place else ""

    def _title(self, entry: Entry) -> str:
        """In what a rank stands: ``all_reduce 10 of the default group``, ``recv from rank 1``."""
        if entry.peer is not None:
            return f"{entry.operation} {'from' if entry.operation == 'recv' else 'to'} rank {entry.peer}"
        group = self.dumps[entry.rank].groups[entry.group]
        return f"{entry.operation} {entry.number} of {ProcessGroup(group.name, group.description, group.ranks).title}"

    def _last_line(self, ranks: Iterable[int]) -> Where | None:
        """The line from which one of them called its last collective."""
        known = (_line(_last(self.dumps[rank])) for rank in ranks if rank in self.dumps)
        return next((line for line in known if line), None)


def _called(
    calls: Mapping[str, tuple[int, ...]], entries: Mapping[int, Entry | None]
) -> tuple[Evidence, ...]:
    lines = {call: _line(entries.get(ranks[0])) for call, ranks in calls.items()}
    return tuple(
        Evidence(f"called {call_phrase(call)}{at(lines[call])}", ranks, lines[call])
        for call, ranks in calls.items()
    )


def _group_of(meeting: Meeting) -> ProcessGroup:
    assert isinstance(meeting.group, ProcessGroup)
    return meeting.group


def _last(dump: Dump) -> Entry | None:
    """The last collective of a rank, of all groups."""
    return max(dump.last.values(), key=lambda entry: entry.position, default=None)


def _line(entry: Entry | None) -> Where | None:
    """The innermost line of the script's own."""
    frame = next(filter(is_of_script, entry.frames if entry else ()), None)
    return where_of(frame) if frame else None
