"""Who waits for whom: in a collective for each member that has not come to it, in a receive for the sender."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ddpdoctor.blame.dump import Dump, Entry
from ddpdoctor.hang.flight.teams import Team, Teams

_OTHER_HALF = {"send": "recv", "recv": "send"}


@dataclass(frozen=True)
class Meeting:
    """What ranks wait in: a collective of a group, or one half of a point-to-point operation."""

    team: Team
    number: int
    halves: tuple[str, int, int] | None = None
    """``("recv", rank, peer)`` for a half, as ranks of the job."""


@dataclass
class Waiting:
    """The wait-for graph of a job: ranks stand in meetings, meetings wait for ranks."""

    stands: dict[int, dict[Meeting, Entry]] = field(default_factory=dict)
    """In what each rank stands, oldest first, peers as ranks of the job; ranks outside everything are not there."""
    late: dict[Meeting, tuple[int, ...]] = field(default_factory=dict)
    """Who has not come to it."""

    def waits_for(self, rank: int) -> tuple[int, ...]:
        """The ranks that a rank waits for."""
        return tuple(
            dict.fromkeys(one for meeting in self.stands.get(rank, ()) for one in self.late[meeting])
        )


def waiting_of(dumps: Mapping[int, Dump], teams: Teams) -> Waiting:
    """The graph that the dumps tell."""
    found = Waiting()
    for rank, dump in sorted(dumps.items()):
        for entry in dump.waits:
            team = teams.of_rank.get((rank, entry.group))
            meeting = _meeting(entry, team) if team else None
            if meeting is not None:
                peer = meeting.halves[2] if meeting.halves else None
                found.stands.setdefault(rank, {})[meeting] = replace(entry, peer=peer)
                if meeting not in found.late:
                    found.late[meeting] = _late(meeting, entry, dumps)
    return found


def _meeting(entry: Entry, team: Team) -> Meeting | None:
    """None where the peer is no member, as only a broken dump has it."""
    if entry.peer is None:
        return Meeting(team, entry.number)
    if entry.peer >= len(team.members):
        return None
    return Meeting(team, entry.turn, (entry.operation, entry.rank, team.members[entry.peer]))


def _late(meeting: Meeting, entry: Entry, dumps: Mapping[int, Dump]) -> tuple[int, ...]:
    if meeting.halves:
        return () if _partner_came(meeting, entry, dumps) else (meeting.halves[2],)
    group = meeting.team.name
    return tuple(
        rank
        for rank in meeting.team.members
        if rank not in dumps or dumps[rank].came_to(group) < meeting.number
    )


def _partner_came(meeting: Meeting, entry: Entry, dumps: Mapping[int, Dump]) -> bool:
    """Whether the other half was issued: it stands there too, or was counted.

    Where a ring has dropped some, nothing can be counted: what completed belongs to another, unless it was issued
    together with what did not.
    """
    assert meeting.halves is not None
    operation, rank, peer = meeting.halves
    other = dumps.get(peer)
    if other is None:
        return False
    if other_half(meeting, dumps) is not None:
        return True
    if other.wrapped or dumps[rank].wrapped:
        return entry.batched
    key = (entry.group, _OTHER_HALF[operation], meeting.team.members.index(rank))
    return other.traffic.get(key, 0) >= entry.turn


def other_half(meeting: Meeting, dumps: Mapping[int, Dump]) -> Entry | None:
    """The send of a receive, or the receive of a send, in which the other rank stands; None where it does not."""
    assert meeting.halves is not None
    operation, rank, peer = meeting.halves
    own = meeting.team.members.index(rank)
    return next(
        (
            one
            for one in (dumps[peer].waits if peer in dumps else ())
            if one.group == meeting.team.name and one.operation == _OTHER_HALF[operation] and one.peer == own
        ),
        None,
    )


def circle(waiting: Waiting, ranks: Iterable[int]) -> list[int]:
    """Ranks that wait for each other in a circle; empty where none do."""
    done: set[int] = set()
    for start in ranks:
        path: dict[int, None] = {}
        rank: int | None = start
        while rank is not None and rank not in done:
            if rank in path:
                walked = list(path)
                return walked[walked.index(rank) :]
            path[rank] = None
            rank = next((one for one in waiting.waits_for(rank) if one not in done), None)
        done.update(path)
    return []
