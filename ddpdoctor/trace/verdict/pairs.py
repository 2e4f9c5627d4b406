"""Ranks that wait for each other where groups or messages of two are in play."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ddpdoctor.blame.place import Kind
from ddpdoctor.blame.standstill import Standstill
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.model import Evidence
from ddpdoctor.text import fold_ranks, ranks_phrase
from ddpdoctor.trace.verdict.standing import Standing
from ddpdoctor.trace.verdict.words import at, doing, evidence

Crowd = Mapping[int, Standing]
_SHOWN = 8


def no_partner(crowd: Crowd, circle: Sequence[int], standstill: Standstill) -> Verdict | None:
    """A message whose other end is in something else (DD301), or waits for a message itself, and so on (DD302)."""
    found = {rank: _peer(crowd[rank]) for rank in circle}
    peers = {rank: peer for rank, peer in found.items() if peer is not None and peer in crowd}
    if len(peers) == len(circle):
        return _ring(crowd, circle, standstill)
    rank = next((rank for rank, peer in peers.items() if peer not in peers and crowd[peer].waits), None)
    if rank is None:
        return None
    peer, place = peers[rank], crowd[rank].place
    assert place is not None
    return Verdict(
        "DD301",
        f"rank {rank} waits in {place.what}{at(place.where)} for rank {peer}, which {doing(crowd[peer])}",
        why=f"A message has two ends. Rank {peer} never calls the other one: a condition on the rank, or on a value "
        "that the two do not share, lets one of them communicate and the other not.",
        fix="let both ends follow from the same values: what one sends, the other receives, in the same order",
        culprits=(peer,),
        waiting=tuple(one for one in circle if one != peer),
        where=crowd[peer].where,
        evidence=evidence(crowd, standstill),
    )


def _peer(one: Standing) -> int | None:
    """The other end of the message in which a rank stands."""
    if one.place is None or one.place.kind is not Kind.PAIR or one.call is None:
        return None
    return one.call.peer


def _ring(crowd: Crowd, circle: Sequence[int], standstill: Standstill) -> Verdict:
    first = crowd[circle[0]]
    assert first.place is not None
    chain = ", ".join(f"rank {rank} for rank {_peer(crowd[rank])}" for rank in circle[:_SHOWN])
    return Verdict(
        "DD302",
        f"{ranks_phrase(circle)} wait for each other in {first.place.what}: {chain}",
        why="Every one of them waits for a message that its peer sends only after it got its own, so nobody begins.",
        fix="let every second rank send first; or issue both at once:\n"
        "for work in dist.batch_isend_irecv([P2POp(dist.isend, ...), P2POp(dist.irecv, ...)]):\n    work.wait()",
        culprits=tuple(circle),
        where=first.where,
        evidence=evidence(crowd, standstill),
    )


def groups_in_a_circle(crowd: Crowd, circle: Sequence[int], standstill: Standstill) -> Verdict | None:
    """Groups that share ranks, used in different orders (DD309)."""
    groups = {rank: crowd[rank].group for rank in circle}
    if any(group is None for group in groups.values()) or len(set(groups.values())) < 2:
        return None
    first = crowd[circle[0]]
    said = {rank: f"ranks {fold_ranks(group)}" for rank, group in groups.items() if group}
    chain = ", ".join(f"rank {rank} for {group}" for rank, group in list(said.items())[:_SHOWN])
    return Verdict(
        "DD309",
        f"{ranks_phrase(circle)} wait for each other in the collectives of different groups: {chain}",
        why="Each of these collectives waits for a member that is in the collective of another group, in a circle. "
        "Ranks that share groups have to use them in one order.",
        fix="use the groups in the order in which they were made, on every rank; or start all with async_op=True, and "
        "wait for them afterwards",
        culprits=tuple(circle),
        where=first.where,
        evidence=(
            *(
                Evidence(f"in a collective of {group}", (rank,))
                for rank, group in list(said.items())[:_SHOWN]
            ),
            *evidence(crowd, standstill),
        ),
    )
