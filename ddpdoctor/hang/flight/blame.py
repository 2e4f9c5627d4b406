"""Who is to blame, from the dumps of all ranks: the first position where ranks differ, and a wait-for graph.

A rank that stands in a collective waits for every member of its group that has not come to that collective. The
blame follows these edges to whoever waits for nobody: a rank that is outside collectives, or one that left no dump.
The majority is usually the victim, so numbers do not vote, but where ranks disagree about what to call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from ddpdoctor.blame.dump import Dump, Entry
from ddpdoctor.hang.flight.mismatch import Mismatch, differ, first_mismatch
from ddpdoctor.hang.flight.teams import Disagreement, Team, Teams, teams_of
from ddpdoctor.hang.flight.waits import Meeting, Waiting, circle, other_half, waiting_of


class Kind(str, Enum):
    """What went wrong."""

    NOT_JOINED = "not joined"
    """Some ranks wait in something that others have not come to."""
    MISMATCH = "mismatch"
    """At one position, ranks called different operations, shapes or dtypes."""
    MEMBERS = "members"
    """Ranks know different members of one group."""
    ORDER = "order"
    """Ranks wait for each other in a circle: they use groups in different orders."""
    STUCK = "stuck"
    """Everybody came, with equal calls, and it does not complete."""
    NOTHING = "nothing"
    """No rank waits, and none disagree."""


@dataclass(frozen=True)
class Blame:
    """The verdict."""

    kind: Kind
    group: str = ""
    number: int = 0
    """The sequence number of the collective."""
    culprits: tuple[int, ...] = ()
    """The ranks to look at; empty where the dumps do not tell."""
    waiting: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    """Culprits that left no dump: they died, or could not write it."""
    meeting: Meeting | None = None
    """In what they wait."""
    stands: Mapping[int, Entry] | None = None
    """In what each rank stands: in that meeting, else in the oldest thing."""
    calls: Mapping[str, tuple[int, ...]] | None = None
    """For a mismatch: the ranks by what they called."""
    skipped: str | None = None
    """For a mismatch: what the culprits left out, where their further calls are those of the others, one later."""
    extra: str | None = None
    """For a mismatch: what the culprits called more, where that explains their further calls."""
    mismatch: Mismatch | None = None
    disagreement: Disagreement | None = None


def blame(
    dumps: Mapping[int, Dump],
    world_size: int | None = None,
    groups: Mapping[str, tuple[int, ...]] | None = None,
) -> Blame:
    """The root cause that the dumps support.

    Args:
        dumps: by rank.
        world_size: of the job, where it is known and groups do not tell their members.
        groups: members by the name of the group, where another source tells them.
    """
    teams = teams_of(dumps, world_size, groups or {})
    waiting = waiting_of(dumps, teams)
    if teams.disagreement:
        return _members_differ(teams.disagreement, waiting)
    mismatch = _mismatch(dumps, teams, waiting)
    if mismatch is not None:
        return mismatch
    if not waiting.stands:
        return Blame(Kind.NOTHING)
    return _follow(dumps, waiting)


def _mismatch(dumps: Mapping[int, Dump], teams: Teams, waiting: Waiting) -> Blame | None:
    """The first mismatch of a group in which somebody waits, or of any where nobody does.

    One that comes after a collective to which a rank never came did not bring the wait about.
    """
    waited, missed = _waits_by_team(waiting)
    for team in dict.fromkeys(teams.of_rank.values()):
        if waiting.stands and team not in waited:
            continue
        found = first_mismatch(team, dumps)
        if found and found.number <= missed.get(team, found.number):
            return _of_mismatch(found, waiting)
    return None


def _waits_by_team(waiting: Waiting) -> tuple[set[Team], dict[Team, int]]:
    """The groups in whose collectives somebody waits, and the first to which not all came of those that have one."""
    late = {meeting: ranks for meeting, ranks in waiting.late.items() if not meeting.halves}
    missed: dict[Team, int] = {}
    for meeting in (one for one, ranks in late.items() if ranks):
        missed[meeting.team] = min(meeting.number, missed.get(meeting.team, meeting.number))
    return {meeting.team for meeting in late}, missed


def _of_mismatch(found: Mismatch, waiting: Waiting) -> Blame:
    return Blame(
        Kind.MISMATCH,
        found.team.name,
        found.number,
        found.culprits,
        tuple(waiting.stands),
        stands=_oldest(waiting),
        calls=found.calls,
        skipped=found.skipped,
        extra=found.extra,
        mismatch=found,
    )


def _members_differ(told: Disagreement, waiting: Waiting) -> Blame:
    by_number = sorted(told.told.values(), key=len)
    divided = len(by_number[-1]) == len(by_number[-2])
    culprits = () if divided else tuple(sorted(rank for ranks in by_number[:-1] for rank in ranks))
    return Blame(
        Kind.MEMBERS,
        told.name,
        culprits=culprits,
        waiting=tuple(waiting.stands),
        stands=_oldest(waiting),
        disagreement=told,
    )


def _follow(dumps: Mapping[int, Dump], waiting: Waiting) -> Blame:
    late = dict.fromkeys(rank for ranks in waiting.late.values() for rank in ranks)
    sinks = [rank for rank in late if not waiting.waits_for(rank)]
    outside = sorted(rank for rank in sinks if rank not in waiting.stands)
    if outside:
        return _not_joined(waiting, dumps, outside)
    if sinks:
        return _stuck(waiting, dumps, sinks[0])
    ranks = circle(waiting, waiting.stands)
    if ranks:
        return _circle(waiting, ranks)
    return _crossed(waiting) or _stuck(waiting, dumps, next(iter(waiting.stands)))


def _not_joined(waiting: Waiting, dumps: Mapping[int, Dump], outside: list[int]) -> Blame:
    """Named is the meeting in which most ranks wait for them directly."""
    direct = Counter(
        meeting
        for meetings in waiting.stands.values()
        for meeting in meetings
        if not set(outside).isdisjoint(waiting.late[meeting])
    )
    meeting = direct.most_common(1)[0][0]
    missing = tuple(rank for rank in outside if rank not in dumps)
    return _at(Kind.NOT_JOINED, waiting, meeting, tuple(outside), missing)


def _stuck(waiting: Waiting, dumps: Mapping[int, Dump], rank: int) -> Blame:
    meeting, entry = next(iter(waiting.stands[rank].items()))
    other = other_half(meeting, dumps) if meeting.halves else None
    if other is None:
        return _at(Kind.STUCK, waiting, meeting, ())
    texts = {f"{one.operation} {one.shapes} {one.dtypes}": (one.rank,) for one in (entry, other)}
    unlike = differ([text.partition(" ")[2] for text in texts])
    found = _at(Kind.MISMATCH if unlike else Kind.STUCK, waiting, meeting, ())
    return Blame(**{**vars(found), "calls": texts}) if unlike else found


def _circle(waiting: Waiting, ranks: list[int]) -> Blame:
    """Whoever uses groups in another order than most is to blame; all of the circle where there is no most."""
    sides = Counter(next(iter(meetings)) for meetings in waiting.stands.values())
    met = {next(iter(waiting.stands[rank])) for rank in ranks}
    (least, fewest), *others = sorted(((one, sides[one]) for one in met), key=lambda pair: pair[1])
    culprits = sorted(ranks)
    if others and fewest < others[0][1] and not least.halves:
        culprits = [rank for rank, own in waiting.stands.items() if next(iter(own)) == least]
    return _at(Kind.ORDER, waiting, next(iter(waiting.stands[ranks[0]])), tuple(culprits))


def _crossed(waiting: Waiting) -> Blame | None:
    """All were called everywhere, without waiting for them, but not in one order, and so they block each other."""
    firsts = {rank: next(iter(meetings)) for rank, meetings in waiting.stands.items()}
    behind = Waiting({rank: {first: waiting.stands[rank][first]} for rank, first in firsts.items()})
    for meeting in dict.fromkeys(firsts.values()):
        behind.late[meeting] = tuple(
            rank
            for rank in meeting.team.members
            if rank in firsts and firsts[rank] != meeting and meeting in waiting.stands[rank]
        )
    ranks = circle(behind, firsts)
    return _circle(behind, ranks) if ranks else None


def _at(
    kind: Kind, waiting: Waiting, meeting: Meeting, culprits: tuple[int, ...], missing: tuple[int, ...] = ()
) -> Blame:
    return Blame(
        kind,
        meeting.team.name,
        meeting.number,
        culprits,
        tuple(waiting.stands),
        missing,
        meeting,
        _oldest(waiting, meeting),
    )


def _oldest(waiting: Waiting, meeting: Meeting | None = None) -> dict[int, Entry]:
    """The oldest thing in which each rank stands; of those who stand in this meeting, it."""
    return {
        rank: meetings[meeting] if meeting in meetings else next(iter(meetings.values()))
        for rank, meetings in waiting.stands.items()
    }
