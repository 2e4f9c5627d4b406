"""A single process that runs the user's files and the changed copy: whether the change shows there."""

from __future__ import annotations

from collections.abc import Callable

from ddpdoctor.fix.verdict import Verdict, add
from ddpdoctor.trace import Trace

SAME = "a single process trains bit for bit as before"
OTHER = "a single process trains with other numbers than before"
EACH_OTHER = "a single process is not deterministic: two runs of the same code differ"


def in_one_process(verdict: Verdict, before: Trace, after: Trace, again: Callable[[], Trace]) -> Verdict:
    """What came out of a run of all ranks, with what came out of one process before and after the change.

    A script that does not work in one process anyway verifies nothing by it.

    Args:
        again: runs what was there before once more: a script without a seed trains with other numbers each time.
    """
    if before.broken:
        return verdict
    if after.broken:
        return Verdict(False, f"the changed copy does not run in a single process: {after.broken}")
    first, second = _losses(before), _losses(after)
    if not first or not second:
        return verdict
    if first == second:
        return add(verdict, SAME)
    return add(verdict, OTHER if _losses(again()) == first else EACH_OTHER)


def _losses(trace: Trace) -> list[str | None]:
    """The digests of the losses of which gradients were taken, in their order."""
    recordings = list(trace.recorded.values())
    return [backward.loss for recording in recordings for backward in recording.backwards]
