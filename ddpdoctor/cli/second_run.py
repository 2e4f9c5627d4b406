"""Whether what a run showed may come from its passes being cut short, which a second run without cuts decides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ddpdoctor.check import Check
from ddpdoctor.cli.option import LONGEST
from ddpdoctor.judge import Verdict, judge
from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.options import RecorderOptions
from ddpdoctor.trace import Trace

LEAST_SECONDS = 10.0
"""For which no second run is begun."""
WHY = "passes over DataLoaders were cut short before"
NOT_CONFIRMED = f"not confirmed: {WHY}; --full runs everything"


def may_come_from_cuts(trace: Trace, checks: Iterable[Check]) -> bool:
    """Whether the job broke after a cut, or something was found where a pass was cut on some ranks only."""
    jobs = [job for job in (trace, *trace.before) if job.shortened and job.shortened.passes]
    if any(job.broken and not job.out_of_time for job in jobs):
        return True
    return any(_is_cut_on_some(job) for job in jobs) and any(
        finding.level is not Level.INFO
        for verdict in judge(Source.RUN, checks, trace, lambda _: None)
        for finding in verdict.findings
    )


def _is_cut_on_some(trace: Trace) -> bool:
    """Whether a pass was cut short on one rank and not on another."""
    ended: dict[tuple[int, int], set[bool]] = {}
    for recording in trace.recorded.values():
        for pass_ in recording.passes:
            ended.setdefault((pass_.loader, pass_.number), set()).add(pass_.ended == "shortened")
    return any(len(cut) > 1 for cut in ended.values())


def without_cuts(recorder: RecorderOptions, seconds: float) -> RecorderOptions:
    """The options of the second run, which ends in order at a training step where it takes too long."""
    return replace(recorder, batches=0, budget=LONGEST, time_limit=seconds)


def as_information(verdict: Verdict) -> Verdict:
    """A verdict of a run of which nothing is confirmed."""
    if verdict.source not in (Source.RUN, Source.LOG):
        return verdict
    return verdict.with_each(lambda finding: replace(finding, level=Level.INFO))
