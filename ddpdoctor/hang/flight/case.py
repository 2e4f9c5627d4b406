"""The verdict on a job that stands still, from the flight recorder alone, in the words of the check it belongs to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ddpdoctor.blame.dump import Dump, Entry
from ddpdoctor.hang.flight import words
from ddpdoctor.hang.flight.blame import Blame, Kind, blame
from ddpdoctor.hang.flight.reading import entry as read_again
from ddpdoctor.hang.flight.waits import Meeting
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.model import Confidence, Evidence, Where

CODES = ("DD301", "DD302", "DD303", "DD309")
"""Of the checks whose diseases dumps can show."""

_FIX_ORDER = "bring every rank through the same collectives in the same order"


def case_of(
    flight: Mapping[int, Dump],
    world_size: int | None = None,
    groups: Mapping[str, tuple[int, ...]] | None = None,
) -> Verdict | None:
    """What the dumps support; None where nobody waits in what was recorded, and none disagree.

    Args:
        flight: the dumps by rank.
        world_size: of the job, where it is known.
        groups: members by the name of the group, where another source tells them.
    """
    found = blame(flight, world_size, groups)
    if found.kind is Kind.NOTHING:
        return None
    return _TELL[found.kind](found, flight)


def _not_joined(found: Blame, flight: Mapping[int, Dump]) -> Verdict:
    assert found.meeting is not None
    here = [rank for rank, entry in _stands(found).items() if _same(entry, found.meeting)]
    dead, many = set(found.missing) == set(found.culprits), len(found.culprits) > 1
    who = words.who(found.culprits)
    return Verdict(
        "DD301",
        _not_joined_headline(found, here, dead=dead),
        _why_dead(many) if dead else _why_late(many, len(here) == 1 and many),
        _fix_dead(who) if dead else _fix_late(who),
        culprits=found.culprits,
        waiting=found.waiting,
        where=_last_line(found.culprits, flight) or words.line(_stands(found)[here[0]]),
        evidence=_evidence(found, flight),
        confidence=Confidence.LIKELY if found.missing else Confidence.CERTAIN,
    )


def _not_joined_headline(found: Blame, here: list[int], *, dead: bool) -> str:
    assert found.meeting is not None
    who, others, what = words.who(found.culprits), words.who(here), _what(found, here)
    wait, them = "wait" if len(here) > 1 else "waits", "them" if len(found.culprits) > 1 else "it"
    if dead:
        return f"{who} left no dump, and {others} {wait} for {them} in {what}"
    if found.meeting.halves is None:
        return f"{who} did not join {what}, in which {others} {wait}"
    did = "send to" if found.meeting.halves[0] == "recv" else "receive from"
    return f"{who} did not {did} {others}, which {wait} for {them} in {found.meeting.halves[0]}"


def _why_late(many: bool, alone: bool) -> str:
    does, it = ("do", "they are") if many else ("does", "it is")
    why = (
        f"Who waits is the victim: a collective ends when every rank of its group has come, and the culprits {does} "
        if many
        else f"Who waits is the victim: a collective ends when every rank of its group has come, and this one {does} "
    )
    why += f"not come. The flight recorder has calls only, so where {it} now is not in it."
    if alone:
        why += " Since a single rank waits, it may as well be that it called what the others never call: code under a "
        why += "condition on the rank."
    return why


def _why_dead(many: bool) -> str:
    died = "Ranks that leave no dump have" if many else "A rank that leaves no dump has"
    return (
        f"{died} died before the dumps were written, or its host has, and the others wait for ever. A dump that was "
        "only not collected looks the same."
    )


def _fix_late(who: str) -> str:
    return (
        f"see where {who} is now: ddpdoctor hang, on its host; its last collective is told here\n{_FIX_ORDER}"
    )


def _fix_dead(who: str) -> str:
    return (
        f"look for the end of {who}: exit status, dmesg, the scheduler's log\n"
        "ddpdoctor explain LOG    # of its output"
    )


def _mismatch(found: Blame, flight: Mapping[int, Dump]) -> Verdict:
    calls = found.calls or {}
    (most, majority), (call, fewer), *_ = calls.items()
    who, others = words.who(found.culprits or fewer), words.who(majority)
    team = found.mismatch.team.title if found.mismatch else ""
    position = f" at position {found.number} of {team}," if team else ""
    code = "DD303" if found.skipped or found.extra else "DD302"
    if found.skipped:
        headline = f"{who} left out {words.call(found.skipped)}{position} which {others} called"
    elif found.extra:
        headline = (
            f"{who} alone called {words.call(found.extra)}{position} where {others} called {words.call(most)}"
        )
    else:
        headline = f"{who} called {words.call(call)}{position} where {others} called {words.call(most)}"
    entries = _entries_of(found, flight)
    return Verdict(
        code,
        headline,
        "Collectives are matched by their order alone, so these met each other: the ranks wait for what never comes, "
        "get each other's bytes, or end with an error about sizes.",
        f"{_FIX_ORDER}, with the same shapes: no collective under a condition that differs between ranks",
        culprits=found.culprits,
        waiting=found.waiting,
        where=words.line(entries.get(fewer[0])) or words.line(entries.get(majority[0])),
        evidence=tuple(Evidence(_called(one, entries.get(by[0])), by) for one, by in calls.items()),
    )


def _members(found: Blame, flight: Mapping[int, Dump]) -> Verdict:
    assert found.disagreement is not None
    told = sorted(found.disagreement.told.items(), key=lambda pair: -len(pair[1]))
    (members, most), (other, fewer), *_ = told
    return Verdict(
        "DD309",
        f"group {found.group} is of {words.who(members)} on {words.who(most)}, "
        f"and of {words.who(other)} on {words.who(fewer)}",
        "Groups are numbered in the order in which a rank makes them, so ranks that make them in different orders, or "
        "leave some out, mean different groups by one number, and wait in them for each other.",
        "call dist.new_group for every group on every rank, in the same order, also on ranks that are no members",
        culprits=found.culprits,
        waiting=found.waiting,
        where=_last_line(found.culprits or fewer, flight),
        evidence=tuple(Evidence(f"group {found.group} is of {words.who(one)}", by) for one, by in told),
    )


def _order(found: Blame, flight: Mapping[int, Dump]) -> Verdict:
    stands = _stands(found)
    first = found.culprits[0]
    return Verdict(
        "DD302",
        _order_headline(found, flight),
        "Each came first to what another does later: they call the same groups, or each other, in different orders, so "
        "none can go on.",
        "use groups, sends and receives in one order on every rank: by the number of the group, and of two ranks "
        "one sends first and the other receives first\n"
        "ops = [dist.P2POp(dist.isend, ...), dist.P2POp(dist.irecv, ...)]\n"
        "for work in dist.batch_isend_irecv(ops): work.wait()    # for exchanges, in any order",
        culprits=found.culprits,
        waiting=found.waiting,
        where=words.line(stands[first]),
        evidence=_evidence(found, flight),
    )


def _order_headline(found: Blame, flight: Mapping[int, Dump]) -> str:
    stands, (first, *more) = _stands(found), found.culprits
    place = words.title(stands[first], flight)
    if len(more) > 1:
        return f"{words.who(found.culprits)} wait for each other in a circle, the first of them in {place}"
    other = more[0] if more else next(one for one in stands if not _equal(stands[one], stands[first]))
    its_place = words.title(stands[other], flight)
    return f"rank {first} waits in {place}, and rank {other} in {its_place}, each for the other"


def _stuck(found: Blame, flight: Mapping[int, Dump]) -> Verdict:
    here = list(_stands(found))
    return Verdict(
        "DD301",
        f"{words.who(here)} came to {_what(found, here)}, and it does not complete",
        "Every rank joined it with an equal call and none gets an answer: data does not pass between them (a firewall, "
        "the wrong interface, a GPU or a link that failed), or a GPU has not finished what comes before it.",
        "NCCL_DEBUG=INFO shows the interface and the transport: choose another by NCCL_SOCKET_IFNAME\n"
        "ddpdoctor check    # examines the group and the network of this host",
        waiting=found.waiting,
        where=words.line(_stands(found)[here[0]]),
        evidence=_evidence(found, flight),
        confidence=Confidence.LIKELY,
    )


_TELL = {
    Kind.NOT_JOINED: _not_joined,
    Kind.MISMATCH: _mismatch,
    Kind.MEMBERS: _members,
    Kind.ORDER: _order,
    Kind.STUCK: _stuck,
}


def _stands(found: Blame) -> Mapping[int, Entry]:
    return found.stands or {}


def _same(entry: Entry, meeting: Meeting) -> bool:
    """Whether a rank stands in this meeting; of a send or a receive only its own rank does."""
    if meeting.halves:
        return entry.rank == meeting.halves[1] and entry.operation == meeting.halves[0]
    return entry.peer is None and (entry.group, entry.number) == (meeting.team.name, meeting.number)


def _equal(one: Entry, other: Entry) -> bool:
    return (one.group, one.number, one.peer) == (other.group, other.number, other.peer)


def _what(found: Blame, ranks: Iterable[int]) -> str:
    """``all_reduce 10 of the default group``."""
    assert found.meeting is not None
    entry = next((_stands(found)[rank] for rank in ranks), None)
    operation = entry.operation if entry else "a collective"
    number = "" if found.meeting.halves else f" {found.number}"
    return f"{operation}{number} of {found.meeting.team.title}"


def _called(signature: str, entry: Entry | None) -> str:
    where = words.line(entry)
    return f"called {words.call(signature)}{words.at(where)}"


def _entries_of(found: Blame, flight: Mapping[int, Dump]) -> dict[int, Entry]:
    """Of each different call at a mismatch, that of one rank, in full."""
    ranks = [by[0] for by in (found.calls or {}).values()][:8]
    if found.mismatch is None:
        return {rank: _stands(found)[rank] for rank in ranks}
    entries = ((rank, read_again(flight[rank], found.group, found.number)) for rank in ranks)
    return {rank: entry for rank, entry in entries if entry}


def _evidence(found: Blame, flight: Mapping[int, Dump]) -> tuple[Evidence, ...]:
    """Where each rank stands, and where those that keep it waiting were last; ranks in the same state are one."""
    states: defaultdict[str, list[int]] = defaultdict(list)
    for rank in found.culprits:
        if rank not in _stands(found):
            states[_was(rank, flight)].append(rank)
    for rank, entry in _stands(found).items():
        states[f"waits in {words.title(entry, flight)}{words.at(words.line(entry))}"].append(rank)
    return tuple(Evidence(text, tuple(ranks)) for text, ranks in states.items())


def _was(rank: int, flight: Mapping[int, Dump]) -> str:
    if rank not in flight:
        return "left no dump"
    last = words.last(flight[rank])
    if last is None:
        return "came to no collective"
    return f"came last to {words.title(last, flight)}{words.at(words.line(last))}"


def _last_line(ranks: Iterable[int], flight: Mapping[int, Dump]) -> Where | None:
    """The line from which one of them called its last collective."""
    lines = (words.line(words.last(flight[rank])) for rank in ranks if rank in flight)
    return next((line for line in lines if line), None)
