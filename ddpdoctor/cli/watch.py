"""``ddpdoctor watch``: a job run at its full length, and why it hung or broke where it did."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.judging import Judging
from ddpdoctor.cli.options import CheckOptions, OnHang, RunOptions, WatchOptions
from ddpdoctor.cli.output import ReportOutput
from ddpdoctor.cli.request import JOB_FOLDER, Request, request_of
from ddpdoctor.job.run import Care, JobRun
from ddpdoctor.model import Report
from ddpdoctor.progress import Progress
from ddpdoctor.redact import clean, mask_files
from ddpdoctor.report import Format, render
from ddpdoctor.trace import Trace

HANG_SECONDS = 30.0
"""At least, for a rank that could still come back: a job of days is not ended for a pause of seconds."""
VICTIM_SECONDS = 60.0
"""After a rank failed: launchers give the others half a minute, and may start all of them anew."""
GRACE = 5.0
"""Seconds that a job which hangs has to end in order."""


def run_watch(options: WatchOptions) -> int:
    """Run the job, write the report where there is something to say, and return the exit status.

    Raises:
        UsageError: an option asks for what cannot be.
    """
    if not options.words:
        raise UsageError("watch requires a job: ddpdoctor watch -- torchrun train.py")
    shared = {field.name: getattr(options, field.name) for field in fields(RunOptions)}
    watched = _Watched(request_of(CheckOptions(**shared, full=True)), options)
    try:
        return watched.run()
    finally:
        watched.remove()


class _Watched:
    """One job."""

    def __init__(self, request: Request, options: WatchOptions) -> None:
        self._request, self._options = request, options
        self._output, self._progress = ReportOutput(options), Progress(quiet=options.quiet)
        self._folder = Path(tempfile.mkdtemp(prefix="ddpdoctor-"))
        self._keep = False
        self._signals: list[int] = []

    def run(self) -> int:
        """Run it to its end, or until it hangs."""
        judging = Judging(self._request, self._folder)
        job = self._start(judging.subfolder(JOB_FOLDER))
        try:
            with self._passed_on(job), self._progress:
                trace = job.finish(math.inf)
        except KeyboardInterrupt:
            job.stop()
        if self._signals:
            name = signal.Signals(self._signals[0]).name
            print(f"ddpdoctor: stopped by {name}; nothing of it is left running", file=sys.stderr)
            return 128 + self._signals[0]
        report = self._judge(judging, trace)
        self._keep = report.exit_status != 0 or self._options.keep
        self._write(self._kept(report))
        return _status(trace, report)

    def _start(self, folder: Path) -> JobRun:
        job, plan, torch = self._request.job, self._request.host.plan, self._request.host.torch
        assert job is not None, "there are words"
        care = Care(
            self._options.hang_after,
            HANG_SECONDS,
            GRACE,
            VICTIM_SECONDS,
            passes_on=True,
            tell=self._tell,
            on_hang=self._report if self._options.on_hang is OnHang.REPORT else None,
        )
        version = torch.version if torch else None
        follow, orphaned = self._output.follow(self._progress.hide), [self._folder]
        return JobRun(job, plan, folder, torch=version, follow=follow, if_orphaned=orphaned, care=care)

    def _tell(self, sentence: str) -> None:
        if not self._options.quiet:
            print(f"ddpdoctor: {sentence}", file=sys.stderr, flush=True)

    def _report(self, trace: Trace) -> bool:
        """Say why a job stands still that is left alone."""
        report = self._judge(Judging(self._request, self._folder), trace)
        text = render(clean(report, os.environ), Format.TERMINAL)
        print(f"\n{text}\nddpdoctor: the job is left alone\n", file=sys.stderr, flush=True)
        return False

    def _judge(self, judging: Judging, trace: Trace) -> Report:
        judging.judge_run(trace, self._folder / JOB_FOLDER)
        if judging.unfinished and not trace.broken:
            # The job did what it was to do; that it is no training is for check to mind.
            judging.notes.append(f"there was nothing to judge: {judging.unfinished}")
            judging.unfinished = None
        return judging.compose()

    def _kept(self, report: Report) -> Report:
        """The report with the folder that stays, where one does."""
        if not self._keep:
            return report
        mask_files(self._folder, self._request.host.environ)
        if self._options.on_hang is OnHang.DUMP:
            name = time.strftime("ddpdoctor-hang-%Y%m%d-%H%M%S")
            self._folder = Path(shutil.move(self._folder, Path.cwd() / name))
        return replace(report, run={**report.run, "folder": str(self._folder)})

    def _write(self, report: Report) -> None:
        says_nothing = not report.findings and report.exit_status == 0 and not self._options.verbose
        if not (says_nothing and self._output.is_terminal):
            self._output.write(report)

    @contextlib.contextmanager
    def _passed_on(self, job: JobRun) -> Iterator[None]:
        """The first signal is the job's; another ends everything."""

        def take(number: int, frame: FrameType | None) -> None:
            self._signals.append(number)
            if len(self._signals) > 1 or number == signal.SIGHUP:
                raise KeyboardInterrupt
            job.pass_on(number)

        asked = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        numbers = [n for n in asked if signal.getsignal(n) is not signal.SIG_IGN]
        before = {number: signal.signal(number, take) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def remove(self) -> None:
        """Remove the folder, unless it stays."""
        if not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)


def _status(trace: Trace, report: Report) -> int:
    """The job's own exit status where it ended by itself and not well, so that who waits for it sees that."""
    if trace.timed_out or not trace.status:
        return report.exit_status
    return trace.status if trace.status > 0 else 128 - trace.status
