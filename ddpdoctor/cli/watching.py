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
from dataclasses import replace
from pathlib import Path
from types import FrameType

from ddpdoctor.cli.check import Passing
from ddpdoctor.cli.errors import INTERRUPTED, UsageError
from ddpdoctor.cli.judging import Judging, Request
from ddpdoctor.cli.options import Options
from ddpdoctor.cli.output import open_output, write_out, write_report
from ddpdoctor.cli.request import request_of
from ddpdoctor.cli.watch import OnHang
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


def run_watch(options: Options, on_hang: OnHang) -> int:
    """Run the job, write the report where there is something to say, and return the exit status.

    Raises:
        UsageError: an option asks for what cannot be.
    """
    if not options.words:
        raise UsageError("watch runs a job, and none is given: ddpdoctor watch -- torchrun train.py")
    watched = _Watched(request_of(options), options, on_hang)
    try:
        return watched.run()
    except KeyboardInterrupt:  # before the job ran, or after it
        return INTERRUPTED
    finally:
        watched.remove()


class _Watched:
    """One job."""

    def __init__(self, request: Request, options: Options, on_hang: OnHang) -> None:
        self._format, self._file = Format(options.format), open_output(options.output)
        self._options, self._on_hang = options, on_hang
        self._progress = Progress(quiet=options.quiet)
        # Where the report goes to stdout for a program, nothing else may.
        self._beside_report = self._format is not Format.TERMINAL and self._file is None
        self._passing = Passing(self._progress, self._beside_report)
        self._request = request
        self._folder = Path(tempfile.mkdtemp(prefix="ddpdoctor-"))
        self._keep = False
        self._signals: list[int] = []

    def run(self) -> int:
        """Run it to its end, or until it hangs."""
        judging = Judging(self._request, self._folder)
        job = self._start(judging.subfolder("job"))
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
            self._request.hang_after,
            HANG_SECONDS,
            GRACE,
            VICTIM_SECONDS,
            passes_on=True,
            tell=self._tell,
            on_hang=self._report if self._on_hang is OnHang.REPORT else None,
        )
        version = torch.version if torch else None
        follow, orphaned = self._passing.follow, [self._folder]
        return JobRun(job, plan, folder, torch=version, follow=follow, if_orphaned=orphaned, care=care)

    def _tell(self, sentence: str) -> None:
        if not self._options.quiet:
            print(f"ddpdoctor: {sentence}", file=sys.stderr, flush=True)

    def _report(self, trace: Trace) -> bool:
        """Say why a job stands still that is left alone."""
        report = self._judge(Judging(self._request, self._folder), trace)
        text = render(report, Format.TERMINAL, verbose=False, to_terminal=False)
        print(f"\n{text}\nddpdoctor: the job is left alone\n", file=sys.stderr, flush=True)
        return False

    def _judge(self, judging: Judging, trace: Trace) -> Report:
        judging.judge_run(trace, self._folder / "job")
        if judging.unfinished and not trace.broken:
            # The job did what it was to do; that it is no training is for check to mind.
            judging.notes.append(f"there was nothing to judge: {judging.unfinished}")
            judging.unfinished = None
        return clean(judging.compose(), os.environ)

    def _kept(self, report: Report) -> Report:
        """The report with the folder that stays, where one does."""
        if not self._keep:
            return report
        mask_files(self._folder, self._request.host.environ)
        if self._on_hang is OnHang.DUMP:
            name = time.strftime("ddpdoctor-hang-%Y%m%d-%H%M%S")
            self._folder = Path(shutil.move(self._folder, Path.cwd() / name))
        return replace(report, run={**report.run, "folder": str(self._folder)})

    def _write(self, report: Report) -> None:
        says_nothing = not report.findings and report.exit_status == 0 and not self._options.verbose
        if says_nothing and self._format is Format.TERMINAL and self._file is None:
            return
        if self._passing.said_something and self._file is None and not self._beside_report:
            write_out("\n")
        write_report(report, self._format, self._file, verbose=self._options.verbose)

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
