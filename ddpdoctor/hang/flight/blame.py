"""Who is to blame, from the dumps of all ranks: the first position where ranks differ, and a wait-for graph.

A rank that stands in a collective waits for every member of its group that has not come to that collective. The
blame follows these edges to whoever waits for nobody: a rank that is outside collectives, or one that left no dump.
The majority is usually the victim, so numbers do not vote, but where ranks disagree about what to call.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import networkx

from ddpdoctor.hang.flight.dump import Dump, Group


class Kind(str, Enum):
    """What went wrong."""

    NOT_JOINED = "not joined"
    """Some ranks wait in a collective that others have not come to."""
    MISMATCH = "mismatch"
    """At one position, ranks called different operations, shapes or dtypes."""
    ORDER = "order"
    """Ranks wait for each other in a circle: they use groups in different orders."""
    STUCK = "stuck"
    """Every member came, with equal calls, and the collective does not complete."""
    NOTHING = "nothing"
    """No rank waits in a collective, and none disagree."""


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
    calls: Mapping[str, tuple[int, ...]] | None = None
    """For a mismatch: the ranks by what they called."""
    skipped: str | None = None
    """For a mismatch: what the culprits left out, where their further calls are those of the others, one later."""


@dataclass(frozen=True)
class _Wait:
    group: str
    number: int


def blame(dumps: Mapping[int, Dump], world_size: int | None = None) -> Blame:
    """The root cause that the dumps support.

    Args:
        dumps: by rank.
        world_size: of the job, where it is known and groups do not tell their members.
    """
    members = _members(dumps, world_size)
    mismatch = _first_mismatch(dumps, members)
    if mismatch is not None:
        return mismatch
    waits = {rank: wait for rank, dump in dumps.items() if (wait := _wait(dump))}
    if not waits:
        return Blame(Kind.NOTHING)
    return _follow(dumps, members, waits)


def _members(dumps: Mapping[int, Dump], world_size: int | None) -> dict[str, tuple[int, ...]]:
    """The members of every group: as told, else whoever used it, else everybody for the default group."""
    told: dict[str, tuple[int, ...]] = {}
    used: defaultdict[str, set[int]] = defaultdict(set)
    for rank, dump in dumps.items():
        for name, group in dump.groups.items():
            told[name] = group.ranks or told.get(name, ())
            used[name].add(rank)
    everybody = tuple(range(world_size)) if world_size else tuple(sorted(dumps))
    return {
        name: ranks or (everybody if name == "0" else tuple(sorted(used[name])))
        for name, ranks in told.items()
    }


def _wait(dump: Dump) -> _Wait | None:
    """The oldest collective in which a rank still stands."""
    pending = [_Wait(name, ring.pending[0]) for name, ring in dump.rings.items() if ring.pending]
    return min(pending, key=lambda wait: wait.number, default=None)


def _came_to(dump: Dump, group: str) -> int:
    """The last collective of a group that a rank has come to; 0 where it used none."""
    ring = dump.rings.get(group)
    in_ring = ring.numbers[-1] if ring and ring.numbers else 0
    return max(in_ring, dump.groups.get(group, Group(group)).enqueued or 0)


def _first_mismatch(dumps: Mapping[int, Dump], members: Mapping[str, tuple[int, ...]]) -> Blame | None:
    found = [
        mismatch
        for group, ranks in members.items()
        if (mismatch := _mismatch_in(group, [dumps[rank] for rank in ranks if rank in dumps]))
    ]
    return min(found, key=lambda one: one.number, default=None)


def _mismatch_in(group: str, dumps: list[Dump]) -> Blame | None:
    """The first position of a group where two ranks, whose rings both have it, called different things."""
    present = [dump for dump in dumps if group in dump.rings]
    numbers = _numbers_that_differ(group, present)
    if not numbers:
        return None
    number = min(numbers)
    calls: defaultdict[str, list[int]] = defaultdict(list)
    for dump in present:
        if (call := _call(dump, group, number)) is not None:
            calls[call].append(dump.rank)
    return _judge_mismatch(group, number, calls, {dump.rank: dump for dump in present})


def _numbers_that_differ(group: str, dumps: list[Dump]) -> set[int]:
    """Positions at which some dump differs from the first dump that has them."""
    first: dict[int, str] = {}
    differ: set[int] = set()
    for dump in dumps:
        ring, texts = dump.rings[group], dump.texts
        for number, signature in zip(ring.numbers, ring.signatures, strict=True):
            if first.setdefault(number, texts[signature]) != texts[signature]:
                differ.add(number)
    return differ


def _call(dump: Dump, group: str, number: int) -> str | None:
    """What a rank called at a position; None where its ring does not have it."""
    ring = dump.rings[group]
    place = bisect_left(ring.numbers, number)
    if place == len(ring.numbers) or ring.numbers[place] != number:
        return None
    return dump.texts[ring.signatures[place]]


def _judge_mismatch(
    group: str, number: int, calls: Mapping[str, list[int]], dumps: Mapping[int, Dump]
) -> Blame:
    ordered = sorted(calls.items(), key=lambda pair: (-len(pair[1]), pair[1]))
    most, fewer = ordered[0], ordered[1:]
    divided = len(fewer[0][1]) == len(most[1])
    culprits = () if divided else tuple(sorted(rank for _, ranks in fewer for rank in ranks))
    suspects = fewer[0][1]
    return Blame(
        Kind.MISMATCH,
        group,
        number,
        culprits,
        calls={call: tuple(ranks) for call, ranks in ordered},
        skipped=_skipped(dumps[suspects[0]], dumps[most[1][0]], group, number),
    )


def _skipped(suspect: Dump, other: Dump, group: str, number: int) -> str | None:
    """What the suspect left out: from there on it calls what the other calls one position later."""
    steps = [(_call(suspect, group, at), _call(other, group, at + 1)) for at in range(number, number + 8)]
    both = [(own, its) for own, its in steps if own is not None and its is not None]
    return _call(other, group, number) if both and all(own == its for own, its in both) else None


def _follow(
    dumps: Mapping[int, Dump], members: Mapping[str, tuple[int, ...]], waits: Mapping[int, _Wait]
) -> Blame:
    graph = networkx.DiGraph()
    for rank, wait in waits.items():
        graph.add_node(rank)
        late = (
            m for m in members[wait.group] if m not in dumps or _came_to(dumps[m], wait.group) < wait.number
        )
        graph.add_edges_from((rank, member) for member in late)
    sinks = [rank for rank in graph if graph.out_degree(rank) == 0 and graph.in_degree(rank) > 0]
    if sinks:
        return _not_joined(graph, waits, dumps, sinks)
    circle = _circle(graph)
    if circle:
        return _blame_of(Kind.ORDER, waits[circle[0]], tuple(sorted(circle)), tuple(sorted(waits)))
    first = min(waits.values(), key=lambda wait: wait.number)
    return _blame_of(Kind.STUCK, first, (), tuple(sorted(waits)))


def _circle(graph: networkx.DiGraph) -> list[int]:
    """Ranks that wait for each other in a circle; empty where none do."""
    try:
        return [rank for rank, _ in networkx.find_cycle(graph)]
    except networkx.NetworkXNoCycle:
        return []


def _not_joined(
    graph: networkx.DiGraph, waits: Mapping[int, _Wait], dumps: Mapping[int, Dump], sinks: list[int]
) -> Blame:
    directly = [rank for rank in waits if any(graph.has_edge(rank, sink) for sink in sinks)]
    wait = min((waits[rank] for rank in directly), key=lambda one: one.number)
    missing = tuple(sorted(rank for rank in sinks if rank not in dumps))
    return Blame(
        Kind.NOT_JOINED, wait.group, wait.number, tuple(sorted(sinks)), tuple(sorted(waits)), missing
    )


def _blame_of(kind: Kind, wait: _Wait, culprits: tuple[int, ...], waiting: tuple[int, ...]) -> Blame:
    return Blame(kind, wait.group, wait.number, culprits, waiting)
