"""``ddpdoctor watch``: a job run at its full length, and why it hung or broke where it did."""

from __future__ import annotations

import gc
import math
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import fields, replace
from pathlib import Path
from types import FrameType

from ddpdoctor.cli.errors import UsageError, handled
from ddpdoctor.cli.hosts import Hosts
from ddpdoctor.cli.options import CheckOptions, OnHang, RunOptions, WatchOptions
from ddpdoctor.cli.report_output import ReportOutput, is_reported_elsewhere, presentable, writing
from ddpdoctor.cli.request import JOB_FOLDER, Request, request_of
from ddpdoctor.cli.run_folder import RunFolder
from ddpdoctor.cli.run_judging import RunJudging
from ddpdoctor.job.record_watch import Watch
from ddpdoctor.job.run import JobRun, RunPolicy
from ddpdoctor.live.job import LiveRanks, sentence
from ddpdoctor.live.metrics import Metrics, NoClient
from ddpdoctor.model import Report
from ddpdoctor.nodes.agreement import RunState
from ddpdoctor.progress import Progress
from ddpdoctor.report import Format, render
from ddpdoctor.trace import Trace

HANG_SECONDS = 30.0
"""At least, for a rank that could still come back: a job of days is not ended for a pause of seconds."""
VICTIM_SECONDS = 60.0
"""After a rank failed: launchers give the others half a minute, and may start all of them anew."""
MEET_SECONDS = 600.0
"""For the other hosts of the job to come: torchrun's rendezvous waits as long."""
GRACE = 5.0
"""Seconds that a job which hangs has to end in order."""


def run_watch(options: WatchOptions) -> int:
    """Run the job, write the report where there is something to say, and return the exit status; UsageError where an
    option asks for what cannot be."""
    if not options.words:
        raise UsageError("watch requires a job: ddpdoctor watch -- torchrun train.py")
    shared = {field.name: getattr(options, field.name) for field in fields(RunOptions)}
    request = request_of(CheckOptions(**shared, full=True, keep_files=True))
    with RunFolder(request) as folder:
        return _Watched(request, options, folder).run()


class _Watched:
    """One job."""

    def __init__(self, request: Request, options: WatchOptions, folder: RunFolder) -> None:
        self._request, self._options, self._folder = request, options, folder
        self._output, self._progress = ReportOutput(options), Progress(quiet=options.quiet)
        self._hosts = Hosts(request, folder.path, self._progress.stage)
        self._signals: list[int] = []
        self._live: LiveRanks | None = None
        self._metrics: Metrics | None = None

    def run(self) -> int:
        """Run it to its end, or until it hangs."""
        judging = RunJudging(self._request, self._folder.path)
        with closing(self._hosts), self._offered_metrics():
            self._hosts.meet(self._request.host.launch, time.monotonic() + MEET_SECONDS)
            if self._hosts.broken:
                raise UsageError(f"{self._hosts.broken}; run the same command on every host")
            self._request = self._hosts.numbered(self._request, 0.0)
            return self._run(judging)

    def _run(self, judging: RunJudging) -> int:
        gc.set_threshold(700)  # objects, as by Python's default: a watch goes on for days
        job = self._start(judging.subfolder(JOB_FOLDER))
        try:
            with self._passed_on(job), self._progress:
                trace = job.finish(math.inf)
        except KeyboardInterrupt:
            job.stop()
        if self._signals:
            name = signal.Signals(self._signals[0]).name
            print(f"ddpdoctor: stopped by {name}; no process of it is left running", file=sys.stderr)
            return 128 + self._signals[0]
        here = trace
        trace, folders = self._hosts.run(trace)
        if not self._hosts.judges:
            if reported := self._hosts.report_of_leader(judging.started):
                if reported.exit_status:
                    is_reported_elsewhere(reported)
                return _status(here, reported)
            trace = self._hosts.alone(trace)
        judging.notes += self._hosts.notes
        report = self._judge(judging, trace, folders)
        self._hosts.announce(report)
        self._write(self._folder.keep(report, here=self._options.on_hang is OnHang.DUMP))
        return _status(here, report)

    def _start(self, folder: Path) -> JobRun:
        job, host = self._request.job, self._request.host
        assert job is not None, "there are words"
        policy = RunPolicy(
            self._options.hang_after,
            HANG_SECONDS,
            GRACE,
            VICTIM_SECONDS,
            passes_on=True,
            tell=self._tell,
            on_hang=self._report if self._options.on_hang is OnHang.REPORT else None,
            when_looked=self._show if self._metrics or self._progress.is_live else None,
            agreement=self._hosts.agreement,
        )
        return JobRun(
            replace(job, recorder=replace(job.recorder, watched=True)),
            host.launch,
            folder,
            torch=host.torch_version,
            follow=self._output.follow(self._progress),
            if_orphaned=[self._folder.path],
            policy=policy,
        )

    @contextmanager
    def _offered_metrics(self) -> Iterator[None]:
        """Publish what was asked for, as long as the job runs."""
        if self._options.metrics is None:
            yield
            return
        try:
            with writing(self._options.metrics, "--metrics"):
                self._metrics = Metrics(self._options.metrics)
        except NoClient:
            install = "pip install 'ddpdoctor[metrics]'"
            raise UsageError(f"--metrics requires the client of Prometheus: {install}") from None
        with closing(self._metrics):
            yield

    def _show(self, records: Watch, state: RunState) -> None:
        """Say how the job is doing, where somebody looks."""
        self._live = self._live or LiveRanks(records)
        job = self._live.now()
        if self._metrics:
            self._metrics.take(job, state)
        if self._progress.is_live:
            self._progress.stage(sentence(job), cut_at_end=True)

    def _tell(self, sentence: str) -> None:
        if not self._options.quiet:
            print(f"ddpdoctor: {sentence}", file=sys.stderr, flush=True)

    def _report(self, trace: Trace) -> bool:
        """Say why a job stands still that is left alone."""
        judging = RunJudging(self._request, self._folder.path)
        report = self._judge(judging, trace, [self._folder.path / JOB_FOLDER])
        text = render(presentable(report), Format.TERMINAL)
        print(f"\n{text}\nddpdoctor: the job is left alone\n", file=sys.stderr, flush=True)
        return False

    def _judge(self, judging: RunJudging, trace: Trace, folders: Sequence[Path]) -> Report:
        judging.judge_run(trace, folders)
        if judging.unfinished and not trace.broken:
            # The job did what it was to do; that it is no training is for check to mind.
            judging.notes.append(f"nothing was checked: {judging.unfinished}")
            judging.unfinished = None
        return judging.compose()

    def _write(self, report: Report) -> None:
        says_nothing = not report.findings and report.exit_status == 0 and not self._options.verbose
        self._output.write(report, silent=says_nothing)

    def _passed_on(self, job: JobRun) -> AbstractContextManager[None]:
        """The first signal is the job's; another ends everything."""

        def take(number: int, frame: FrameType | None) -> None:
            self._signals.append(number)
            if len(self._signals) > 1 or number == signal.SIGHUP:
                raise KeyboardInterrupt
            job.pass_on(number)

        return handled(take, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _status(trace: Trace, report: Report) -> int:
    """The job's own exit status where it ended by itself and not well, so that who waits for it sees that."""
    if trace.timed_out or not trace.status:
        return report.exit_status
    return trace.status if trace.status > 0 else 128 - trace.status
