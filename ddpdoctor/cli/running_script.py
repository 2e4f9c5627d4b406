"""What the progress line says of a script while it runs."""

from __future__ import annotations

import time

from ddpdoctor.job.command import Job
from ddpdoctor.job.record_watch import Watch
from ddpdoctor.nodes.agreement import RunState
from ddpdoctor.progress import Progress

_PAUSE = 1.0
"""Seconds between two sentences, so that one about ranks that wait can be read."""


def how_long(job: Job | None) -> str:
    """How long it will be, before it begins."""
    if job is None or job.recorder.full:
        return ""
    batches = job.recorder.batches
    return f", {batches} batches per pass" if batches else f", about {job.recorder.budget:.0f} s of training"


class RunningScript:
    """A script while it runs: how many steps it has trained, and for how long it may go on."""

    def __init__(self, job: Job, progress: Progress) -> None:
        self._job, self._progress = job, progress
        self._trains_since: float | None = None
        self._shown = time.monotonic()

    def show(self, records: Watch, state: RunState) -> None:
        """Say it on a live line."""
        now, steps = (
            time.monotonic(),
            max((r.beat.steps for r in records.ranks().values() if r.beat), default=0),
        )
        if self._job.bundled or not steps or state is not RunState.MOVES or now - self._shown < _PAUSE:
            return
        self._shown, self._trains_since = now, self._trains_since or now
        left, options = "", self._job.recorder
        if not (options.full or options.batches):
            seconds = options.budget - (now - self._trains_since)
            left = f", at most {seconds:.0f} s of training left" if seconds > 0 else ", to its end"
        self._progress.stage(f"running {self._job.name}: training step {steps}{left}")
