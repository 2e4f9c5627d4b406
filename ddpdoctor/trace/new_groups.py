"""The default process group, and those that ranks make by new_group, which all have to make in one order."""

from __future__ import annotations

from collections.abc import Mapping

from ddpdoctor.blame.causes import GroupsOutOfOrder, Members
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.redact import show_value
from ddpdoctor.text import odd_ranks
from ddpdoctor.trace.recording import Recording


def groups_made(recording: Recording) -> list[GroupEvent]:
    """The groups that a rank has called for, in order."""
    made = (group for group in recording.groups if group.action in ("making", "new_group"))
    return [group for group in made if not group.local]


def joined_with(event: GroupEvent, name: str) -> int | None:
    """The ``rank`` or ``world_size`` that a rank joined with: as an argument, or through the environment."""
    argument = event.arguments.get(name, -1)
    text = event.environ.get(name.upper(), "") if argument in (-1, None) else str(argument)
    return int(text) if text.isdigit() else None


def store_place(event: GroupEvent) -> str:
    """Where a rank connects to the store of its default group."""
    method = str(event.arguments.get("init_method") or "env://")
    if not method.startswith("env://"):
        return show_value("init_method", method)
    address, port = (event.environ.get(name, "?") for name in ("MASTER_ADDR", "MASTER_PORT"))
    return f"{show_value('MASTER_ADDR', address)} port {show_value('MASTER_PORT', port)[1:-1]}"


def first_difference(orders: Mapping[int, list[GroupEvent]]) -> dict[int, GroupEvent | None] | None:
    """What each rank made at the first position at which they differ."""
    for position in range(max(map(len, orders.values()))):
        row = {rank: made[position] if position < len(made) else None for rank, made in orders.items()}
        if len({group.ranks if group else None for group in row.values()}) > 1:
            return row
    return None


def out_of_order(row: Mapping[int, GroupEvent]) -> GroupsOutOfOrder:
    """Ranks that made different groups at one position."""
    members = {rank: event.ranks for rank, event in row.items()}
    odd = odd_ranks(members)
    others = tuple(rank for rank in members if rank not in odd)
    return GroupsOutOfOrder(members=members, culprits=odd, waiting=others, where=row[odd[0]].at)


def made_alone(orders: Mapping[int, list[GroupEvent]]) -> list[int]:
    """The few ranks that made one group more, and then those that the others made."""
    lists = {rank: [group.ranks for group in made] for rank, made in orders.items()}
    heads = _heads(lists)
    for group in {head[0] for head in heads.values() if head}:
        with_it = [rank for rank, head in heads.items() if head[:1] == [group]]
        others = [rank for rank in heads if rank not in with_it]
        goes_on = {head[1] for head in heads.values() if head[:1] == [group] and len(head) > 1}
        unknown = all(group not in lists[rank] for rank in others)
        common = goes_on & {head for rank in others for head in heads[rank][:1]}
        if unknown and 2 * len(with_it) <= len(heads) and common:
            return with_it
    return []


def _heads(lists: Mapping[int, list[Members]]) -> dict[int, list[Members]]:
    """What each rank made at the first position at which they differ, and next; nothing where they do not."""
    for position in range(max(map(len, lists.values()))):
        heads = {rank: made[position : position + 2] for rank, made in lists.items()}
        if len({tuple(head[:1]) for head in heads.values()}) > 1:
            return heads
    return {}
