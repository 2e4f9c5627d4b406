"""Process groups that ranks make in different orders, or only some of them (DD309)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from ddpdoctor.blame.place import Kind
from ddpdoctor.blame.standstill import Standstill
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.model import Confidence, Evidence
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.text import fold_ranks, ranks_phrase
from ddpdoctor.trace.odd import by_state, odd_ranks
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.verdict.standing import Standing, recordings_of
from ddpdoctor.trace.verdict.words import evidence, they

Crowd = Mapping[int, Standing]
Members: TypeAlias = "tuple[int, ...] | None"
_WHY = (
    "new_group is a collective of the whole job: every rank has to call it for every group, in the same order, also "
    "for groups that it is no member of. "
)
_FIX = (
    "on every rank, outside of any condition on the rank:\n"
    "groups = [dist.new_group(ranks) for ranks in all_of_them]     # in one order\n"
    "group = next(g for g, ranks in zip(groups, all_of_them) if rank in ranks)"
)


def made_differently(crowd: Crowd, standstill: Standstill) -> Verdict | None:
    """Whether somebody waits in new_group for ranks that made other groups, or none."""
    inside = [rank for rank, one in crowd.items() if one.waits and one.place and one.place.kind is Kind.GROUP]
    others = [rank for rank, one in crowd.items() if one.waits and rank not in inside]
    if not inside:
        return None
    seen = recordings_of(crowd)
    orders = {rank: made_by(one) for rank, one in seen.items()}
    if len(orders) == len(crowd):
        extra = made_alone(orders)
        if extra:
            return _alone(crowd, extra, [one for one in crowd if one not in extra], standstill)
        row = first_difference(orders)
        return None if row is None else _differ(crowd, row, standstill)
    return _alone(crowd, inside, others, standstill) if others else None


def made_by(recording: Recording) -> list[GroupEvent]:
    """The groups that a rank has called for, in order."""
    return [one for one in recording.groups if one.action in ("making", "new_group") and not one.local]


def first_difference(orders: Mapping[int, list[GroupEvent]]) -> dict[int, GroupEvent | None] | None:
    """What each rank made at the first position at which they differ."""
    for position in range(max(map(len, orders.values()))):
        row = {rank: made[position] if position < len(made) else None for rank, made in orders.items()}
        if len({one.ranks if one else None for one in row.values()}) > 1:
            return row
    return None


def _differ(crowd: Crowd, row: Mapping[int, GroupEvent | None], standstill: Standstill) -> Verdict | None:
    called = [rank for rank, one in row.items() if one is not None]
    others = [rank for rank in row if rank not in called]
    if others:
        # Who is busy before it comes to new_group is judged for that.
        return (
            _alone(crowd, called, others, standstill)
            if all(crowd[rank].waits or crowd[rank].left for rank in others)
            else None
        )
    return other_members({rank: one for rank, one in row.items() if one is not None}, crowd, standstill)


def other_members(
    row: Mapping[int, GroupEvent], crowd: Crowd | None = None, standstill: Standstill | None = None
) -> Verdict:
    """Ranks that made different groups at one position."""
    members = {rank: one.ranks for rank, one in row.items()}
    odd = odd_ranks(members)
    first, other = odd[0], next(rank for rank in members if members[rank] != members[odd[0]])
    alike = [rank for rank in odd if members[rank] == members[first]]
    more = evidence(crowd, standstill) if crowd and standstill else ()
    return Verdict(
        "DD309",
        f"{ranks_phrase(alike)} called new_group for {_for(members[first])} where rank {other} called it for "
        f"{_for(members[other])}",
        why=_WHY
        + "Groups are matched by their order alone, so these two are taken for one, and its members do not "
        "find each other.",
        fix=_FIX,
        culprits=odd,
        waiting=tuple(rank for rank in members if rank not in odd),
        where=row[first].at,
        evidence=(*_orders(members), *more),
    )


def _orders(members: Mapping[int, tuple[int, ...] | None]) -> tuple[Evidence, ...]:
    return by_state({rank: f"new_group for {_for(ranks)}" for rank, ranks in members.items()})


def _for(ranks: tuple[int, ...] | None) -> str:
    return f"ranks {fold_ranks(ranks)}" if ranks and len(ranks) > 1 else f"rank {fold_ranks(ranks or ())}"


def _alone(crowd: Crowd, called: list[int], others: list[int], standstill: Standstill) -> Verdict:
    first = crowd[called[0]]
    made = made_by(first.recording) if first.recording else []
    alone = next((one for one in made if called_by_some(crowd, one)), made[-1] if made else None)
    return Verdict(
        "DD309",
        f"{ranks_phrase(called)} alone called new_group"
        + (f" for {_for(alone.ranks)}" if alone else f", and {they(called, 'waits', 'wait')} there")
        + f", and {ranks_phrase(others)} did not",
        why=f"{_WHY}From there on {ranks_phrase(called)} and {ranks_phrase(others)} count groups differently, and the "
        "next group, or this one, waits for ranks that do not come.",
        fix=_FIX,
        culprits=tuple(called),
        waiting=tuple(others),
        where=alone.at if alone else first.where,
        evidence=evidence(crowd, standstill),
        confidence=Confidence.CERTAIN if made else Confidence.LIKELY,
    )


def called_by_some(crowd: Crowd, made: GroupEvent) -> bool:
    """Whether there are ranks that never called for this group."""
    return any(
        made.ranks not in [one.ranks for one in made_by(seen)] for seen in recordings_of(crowd).values()
    )


def made_alone(orders: Mapping[int, list[GroupEvent]]) -> list[int]:
    """The few ranks that made one group more, and then those that the others made."""
    lists = {rank: [one.ranks for one in made] for rank, made in orders.items()}
    heads = _heads(lists)
    for group in {head[0] for head in heads.values() if head}:
        with_it = [rank for rank, head in heads.items() if head[:1] == [group]]
        others = [rank for rank in heads if rank not in with_it]
        goes_on = {head[1] for head in heads.values() if head[:1] == [group] and len(head) > 1}
        unknown = all(group not in lists[rank] for rank in others)
        if (
            unknown
            and 2 * len(with_it) <= len(heads)
            and goes_on & {one for r in others for one in heads[r][:1]}
        ):
            return with_it
    return []


def _heads(lists: Mapping[int, list[Members]]) -> dict[int, list[Members]]:
    """What each rank made at the first position at which they differ, and next; nothing where they do not."""
    for position in range(max(map(len, lists.values()))):
        heads = {rank: made[position : position + 2] for rank, made in lists.items()}
        if len({tuple(head[:1]) for head in heads.values()}) > 1:
            return heads
    return {}
