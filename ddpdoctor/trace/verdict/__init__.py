"""Why a job stands still: one cause, from the stacks of its processes, their records and flight recorders.

Who is stuck is usually the victim. The blame follows the waits: to ranks that wait for no rank, which are blocked, at
work, gone or out of sight; or, where all wait for each other, to the first position at which they parted.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddpdoctor.check import Check
from ddpdoctor.hang.flight.case import case_of
from ddpdoctor.hang.standstill import Standstill
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Finding
from ddpdoctor.trace import Trace
from ddpdoctor.trace.verdict.elsewhere import blocked, busy, is_blocked, none_late, unseen
from ddpdoctor.trace.verdict.groups import made_differently
from ddpdoctor.trace.verdict.left import gone
from ddpdoctor.trace.verdict.parted import Crowd, by_records, by_stacks, lines_differ
from ddpdoctor.trace.verdict.standing import standings
from ddpdoctor.trace.verdict.waits import follow


_last: tuple[Trace, Verdict | None] | None = None
"""Every check asks about the same trace, and a thousand dumps take half a second."""


def verdict_of(trace: Trace) -> Verdict | None:
    """The one cause of a standstill; None where there is none, or where no rank waits in vain."""
    global _last
    if _last is None or _last[0] is not trace:
        _last = trace, _judge(trace)
    return _last[1]


def _judge(trace: Trace) -> Verdict | None:
    standstill = trace.standstill
    if standstill is None:
        return None
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
        return blocked(crowd, still, standstill) if everybody else None
    return made_differently(crowd, standstill) or _by_waits(trace, standstill, crowd)


def _by_waits(trace: Trace, standstill: Standstill, crowd: Crowd) -> Verdict:
    here = {rank: one for rank, one in crowd.items() if one.seen or one.left}
    found = follow(here)
    outside = [rank for rank in found.sinks if not crowd[rank].waits]
    if outside:
        return _outside(trace, standstill, crowd, outside)
    if found.circle:
        return _of_circle(standstill, crowd, found.circle)
    missing = [rank for rank in crowd if rank not in here]
    said = _by_flight(standstill)
    if said is None and missing:
        said = unseen(crowd, missing, standstill)
    if said is None and lines_differ(crowd, here):
        said = by_stacks(crowd, tuple(here), standstill)
    return said or none_late(crowd, standstill)


def _outside(trace: Trace, standstill: Standstill, crowd: Crowd, ranks: Sequence[int]) -> Verdict:
    """By ranks that wait for no rank: who is blocked comes before who works, and that before who has left."""
    stuck = [rank for rank in ranks if is_blocked(crowd[rank])]
    if stuck:
        return blocked(crowd, stuck, standstill)
    at_work = [rank for rank in ranks if not crowd[rank].left]
    return busy(crowd, at_work, trace) if at_work else gone(crowd, ranks, standstill)


def _of_circle(standstill: Standstill, crowd: Crowd, circle: Sequence[int]) -> Verdict:
    return (
        by_records(crowd, circle, standstill)
        or _by_flight(standstill)
        or by_stacks(crowd, circle, standstill)
    )


def _by_flight(standstill: Standstill) -> Verdict | None:
    """What flight recorders tell, of which one says nothing without the others."""
    several = len(standstill.flight) > 1
    return case_of(standstill.flight, standstill.world_size) if several else None


def claim(check: Check, trace: Trace) -> list[Finding] | None:
    """The finding of a check whose disease made the job stand still; None where it does not stand still.

    Raises:
        NotMeasured: it does, and of another disease.
    """
    verdict = verdict_of(trace)
    if verdict is None:
        return None
    if verdict.code != check.code:
        raise NotMeasured(f"the job stands still ({verdict.code})")
    return [finding_of(verdict)]


def finding_of(verdict: Verdict) -> Finding:
    """A verdict in the vocabulary of the report."""
    return Finding(
        verdict.code,
        verdict.level,
        verdict.headline,
        verdict.why,
        verdict.fix,
        verdict.culprits or verdict.waiting,
        verdict.where,
        verdict.evidence,
        verdict.confidence,
    )
