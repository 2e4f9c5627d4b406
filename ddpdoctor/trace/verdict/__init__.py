"""Why a job stands still: one cause, from the stacks of its processes, their records and flight recorders.

Who is stuck is usually the victim. The blame follows the waits: to ranks that wait for no rank, which are blocked, at
work, gone or out of sight; or, where all wait for each other, to the first position at which they parted.
"""

from __future__ import annotations

from ddpdoctor.check import Check
from ddpdoctor.hang.verdict import Verdict
from ddpdoctor.judge import NotMeasured
from ddpdoctor.model import Finding
from ddpdoctor.trace import Trace

_LAST: list[tuple[Trace, Verdict | None]] = []
"""Every check asks about the same trace, and a thousand dumps take half a second."""


def verdict_of(trace: Trace) -> Verdict | None:
    """The one cause of a standstill; None where there is none, or where no rank waits in vain."""
    if trace.standstill is None:
        return None
    last = next((one for one in _LAST if one[0] is trace), None)
    if last is None:
        # Here: networkx takes longer to import than all of a healthy job's judging.
        from ddpdoctor.trace.verdict.judging import judge_standstill

        last = trace, judge_standstill(trace, trace.standstill)
        _LAST[:] = [last]
    return last[1]


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
