"""Runs a script a second time, in one process, on the batches that its ranks took for their first update."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ddpdoctor.job.command import RECORD, Job
from ddpdoctor.job.job_folder import EXACT, read_trace
from ddpdoctor.job.run import JobRun
from ddpdoctor.launch import Launch
from ddpdoctor.trace import Trace


def replay(job: Job, launch: Launch, folder: Path, deadline: float, torch: str | None) -> Trace:
    """Replay the first update, where the first run left what it takes.

    Args:
        folder: the first run's.
        deadline: on the monotonic clock.
        torch: the version of the torch that is installed.

    Returns:
        The first run's trace, which now has ``exact``.
    """
    trace = read_trace(folder)
    if trace.exact is None or trace.exact.refused is None:
        second = folder / EXACT
        second.mkdir()
        again = replace(job, recorder=replace(job.recorder, exact=str(folder / RECORD)))
        JobRun(again, replace(launch, nproc=1), second, torch=torch, if_orphaned=[second]).finish(deadline)
    return read_trace(folder)
