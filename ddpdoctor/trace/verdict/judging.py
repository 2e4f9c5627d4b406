"""The order in which the possible causes of a standstill are looked at."""

from __future__ import annotations

from collections.abc import Sequence

from ddpdoctor.blame.place import Kind
from ddpdoctor.blame.standstill import Standstill
from ddpdoctor.hang.flight.case import case_of
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.trace import Trace
from ddpdoctor.trace.verdict.elsewhere import blocked, busy, is_blocked, none_late, unseen
from ddpdoctor.trace.verdict.failing import failing
from ddpdoctor.trace.verdict.groups import made_differently
from ddpdoctor.trace.verdict.left import gone
from ddpdoctor.trace.verdict.pairs import groups_in_a_circle, no_partner
from ddpdoctor.trace.verdict.parted import Crowd, by_records, by_stacks, lines_differ
from ddpdoctor.trace.verdict.standing import standings
from ddpdoctor.trace.verdict.waits import follow


def judge_standstill(trace: Trace, standstill: Standstill) -> Verdict | None:
    """The one cause of a standstill; None where no rank waits in vain."""
    recorded = any(one.recording for one in trace.ranks)
    if not standstill.processes and not recorded:
        return case_of(standstill.flight, standstill.world_size) if standstill.flight else None
    crowd = standings(trace)
    if any(one.failed or one.left == "shortened" for one in crowd.values()):
        return None  # who failed is told by its exception; who was ended by us is no culprit
    waiting = [rank for rank, one in crowd.items() if one.waits]
    if not waiting:
        still = [rank for rank, one in crowd.items() if is_blocked(one)]
        everybody = still and all(one.left or rank in still for rank, one in crowd.items())
        return blocked(crowd, _not_for_a_key(crowd, still) or still, standstill) if everybody else None
    return made_differently(crowd, standstill) or _by_waits(trace, standstill, crowd)


def _by_waits(trace: Trace, standstill: Standstill, crowd: Crowd) -> Verdict:
    here = {rank: one for rank, one in crowd.items() if one.seen or one.left}
    found = follow(here)
    outside = [rank for rank in found.sinks if not crowd[rank].waits]
    if outside:
        return _outside(trace, standstill, crowd, outside)
    raised = failing(crowd, standstill)
    if raised:
        return raised
    if found.circle:
        return _of_circle(standstill, crowd, found.circle)
    missing = [rank for rank in crowd if rank not in here]
    parted = not missing and lines_differ(crowd, here)
    said = (by_records(crowd, tuple(here), standstill) if parted else None) or _by_flight(standstill)
    if said is None and missing:
        said = unseen(crowd, missing, standstill)
    if said is None and parted:
        said = by_stacks(crowd, tuple(here), standstill)
    return said or none_late(crowd, standstill)


def _outside(trace: Trace, standstill: Standstill, crowd: Crowd, ranks: Sequence[int]) -> Verdict:
    """By ranks that wait for no rank: who is blocked comes before who works, and that before who has left."""
    stuck = [rank for rank in ranks if is_blocked(crowd[rank])]
    by_itself = _not_for_a_key(crowd, stuck)
    if by_itself:
        return blocked(crowd, by_itself, standstill)
    at_work = [rank for rank in ranks if not crowd[rank].left and rank not in stuck]
    if at_work:
        return busy(crowd, at_work, trace)
    return blocked(crowd, stuck, standstill) if stuck else gone(crowd, ranks, standstill)


def _not_for_a_key(crowd: Crowd, ranks: Sequence[int]) -> list[int]:
    """Those that wait for no key of the store, which another of the ranks that are blocked would have set."""
    return [rank for rank in ranks if (place := crowd[rank].place) is None or place.kind is not Kind.STORE]


def _of_circle(standstill: Standstill, crowd: Crowd, circle: Sequence[int]) -> Verdict:
    return (
        no_partner(crowd, circle, standstill)
        or groups_in_a_circle(crowd, circle, standstill)
        or by_records(crowd, circle, standstill)
        or _by_flight(standstill)
        or by_stacks(crowd, circle, standstill)
    )


def _by_flight(standstill: Standstill) -> Verdict | None:
    """What flight recorders tell, of which one says nothing without the others."""
    several = len(standstill.flight) > 1
    return case_of(standstill.flight, standstill.world_size) if several else None
