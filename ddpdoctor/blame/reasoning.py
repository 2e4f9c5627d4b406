"""The order in which the possible causes of a hang are looked at, whatever is known of the job.

Who is stuck is usually the victim. The blame follows the waits: to ranks that wait for no rank, which are blocked, at
work, gone or out of sight; or, where all wait for each other, to the first position at which they diverged.
"""

from __future__ import annotations

from ddpdoctor.blame.causes import Cause
from ddpdoctor.blame.hang_analysis import HangAnalysis


def cause_of(job: HangAnalysis) -> Cause | None:
    """The one cause of a hang; None where there is none, or where no rank waits in vain."""
    if job.judged_already:
        return None
    apart = job.groups_differ() or job.calls_differ()
    if apart:
        return apart
    graph = job.graph
    if not graph.stands:
        return job.nobody_waits()
    sinks = graph.sinks()
    without_wait = [rank for rank in sinks if rank not in graph.stands]
    if without_wait:
        return job.without_wait(without_wait)
    knot = [] if sinks else graph.knot()
    return job.failed() or (job.knot(knot) if knot else None) or job.nobody_late()
