"""One examination: the host, the live group and a training run, judged into one report."""

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from ddpdoctor.check import Check
from ddpdoctor.cli.hosts import Hosts, facts_by_rank
from ddpdoctor.cli.option import LONGEST
from ddpdoctor.cli.request import JOB_FOLDER, Request
from ddpdoctor.cli.run_folder import RunFolder, hold
from ddpdoctor.cli.run_judging import RunJudging
from ddpdoctor.files import first_written
from ddpdoctor.group.group_record import GroupRecord
from ddpdoctor.group.group_run import GroupRun
from ddpdoctor.group.measure import ORDER
from ddpdoctor.job.command import Job
from ddpdoctor.job.guarded import new_run_id
from ddpdoctor.job.job_folder import read_job
from ddpdoctor.job.record_watch import Watch
from ddpdoctor.job.run import JobRun, RunPolicy
from ddpdoctor.job.several_hosts import read_hosts
from ddpdoctor.job.trainer import bundled_trainer, trainer_deadline, trainer_launch
from ddpdoctor.judge import Verdict, judge, skip_all
from ddpdoctor.launch import UNNUMBERED
from ddpdoctor.model import Evidence, Level, Report, Source
from ddpdoctor.nodes.agreement import RunState
from ddpdoctor.nodes.meeting import wait_for_name
from ddpdoctor.progress import Progress
from ddpdoctor.trace import Trace

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
        now = time.monotonic()
        steps = max((it.beat.steps for it in records.ranks().values() if it.beat), default=0)
        if self._job.bundled or not steps or state is not RunState.MOVES or now - self._shown < _PAUSE:
            return
        self._shown, self._trains_since = now, self._trains_since or now
        left, options = "", self._job.recorder
        if not (options.full or options.batches):
            seconds = options.budget - (now - self._trains_since)
            left = f", at most {seconds:.0f} s of training left" if seconds > 0 else ", to its end"
        self._progress.stage(f"running {self._job.name}: training step {steps}{left}")


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


def as_information(verdict: Verdict) -> Verdict:
    """A verdict of a run of which nothing is confirmed."""
    if verdict.source not in (Source.RUN, Source.LOG):
        return verdict
    return verdict.with_each(lambda finding: replace(finding, level=Level.INFO))


TIME_LIMIT_SLACK = 15.0
"""Seconds between the time limit, when the recorder ends a script in order, and its end by force."""

BROKEN_SECONDS = 10.0
"""That the others wait for a host, and it for them, which has found why it cannot take part."""


def examine(request: Request, progress: Progress) -> Report:
    """Look at everything that was asked for.

    Whatever happens, nothing that was started is left running. The run folder stays only where something
    was found.
    """
    with RunFolder(request) as folder:
        return folder.keep(_Examination(request, progress, folder.path).report())


class _Examination(RunJudging):
    def __init__(self, request: Request, progress: Progress, folder: Path) -> None:
        super().__init__(request, folder)
        self.progress = progress
        self.deadline = self.started + request.host.launch.timeout
        self.job: JobRun | None = None
        self.hosts = Hosts(request, folder, progress.stage)
        self.trace: Trace | None = None
        """Of this host, where another one judges it."""

    def report(self) -> Report:
        """Examine source after source; what a later one cannot show is skipped with the reason."""
        if self.request.earlier:
            self._judge_again(self.request.earlier)
            return self.compose()
        with ExitStack() as started:
            started.callback(self.hosts.close)
            if self._meets:
                self.request = self.hosts.numbered(self.request, self.deadline)
            # First of all, since importing torch takes longer than reading all facts of the host.
            group = self._start_group(started)
            if self.request.job is None:
                # Its ranks are held until nothing is timed any more, when torchrun has imported torch.
                self._start_job(started, hold=True)
            self._examine_host()
            self._meet()
            examined = self.request.checks(Source.GROUP)
            broken = self._examine_group(group, started) if examined else self._only_met()
            self._examine_run(broken, started)
            return self._end()

    def _start_group(self, started: ExitStack) -> GroupRun | None:
        """Start the engine of the group, where one is asked for and the ranks of this host are known."""
        launch, checks = self.request.host.launch, self.request.checks(Source.GROUP)
        if not checks or launch.node_rank == UNNUMBERED:
            return None
        folder, system = self.subfolder("group"), self.request.host.system
        asked, orphaned = _measurements(checks), [self.folder]
        group = GroupRun(launch, asked, folder, new_run_id(), system, if_orphaned=orphaned)
        started.callback(group.stop)
        return group

    def _judge_again(self, folders: Sequence[Path]) -> None:
        """Judge an earlier job by its folders."""
        for folder in folders:
            hold(folder.parent)
        recorded = read_job(folders[0])
        assert recorded is not None, f"{folders[0]} is no job's"
        job, launch = recorded
        self.run = {"nproc": launch.nproc, "nnodes": launch.nnodes, "backend": launch.backend}
        self.run["script"] = None if job.bundled else job.name
        self.since = first_written(folders)
        self.judge_run(read_hosts(folders), folders)

    def _examine_host(self) -> None:
        host, several = self.request.host, self.request.host.launch.nnodes > 1
        if several and host.launch.node_rank != 0 and self._meets:
            wait_for_name(host.launch, host.system.resolve, self.deadline, self.progress.stage)
        if self.request.checks(Source.HOST):
            self.progress.stage("examining this host")
        self.judge(Source.HOST, self.request.host)

    @property
    def _meets(self) -> bool:
        """Whether more than this host alone was asked for."""
        return any(self.request.checks(source) for source in (Source.GROUP, Source.RUN))

    def _meet(self) -> None:
        """Wait for the other hosts of the job, and hear what is wrong with them."""
        if not self._meets:
            return
        # Who has a reason not to come does not let the others wait.
        limit = BROKEN_SECONDS if self.cause_on_host() else math.inf
        self.hosts.meet(self.request.host.launch, min(self.deadline, time.monotonic() + limit))
        self.verdicts = self.hosts.verdicts(self.verdicts)

    def _only_met(self) -> str | None:
        """Why the job cannot begin where no group was asked for."""
        self.unfinished = self.hosts.broken
        return self.hosts.broken

    def _examine_group(self, group: GroupRun | None, started: ExitStack) -> str | None:
        """Judge the group; why it broke, where it did."""
        record = self._group_record(group, started)
        if not self.hosts.judges:
            broken = self.hosts.group_is_judged(record.broken, self.deadline)
            if not self.hosts.judges:
                self.unfinished = broken
                return broken
            record = self.hosts.group_alone(record)
        self._judge_group(record)
        return self.hosts.group_is_judged(record.broken, self.deadline)

    def _group_record(self, group: GroupRun | None, started: ExitStack) -> GroupRecord:
        if group is None or self.hosts.broken:
            if group:
                group.stop()
            return self.hosts.no_group(self.request.host.launch)
        self.progress.stage("importing torch")
        # Of several hosts, the job needs the port that the group holds, and all of them have to agree to begin.
        several = self.request.host.launch.nnodes > 1 and self.request.job is not None
        start = None if several else lambda: self._start_job(started)
        record = group.finish(self.deadline, self.progress.stage, start, self.hosts.lost)
        return self.hosts.group(record, self.deadline)

    def _judge_group(self, record: GroupRecord) -> None:
        self.unfinished = record.broken
        self._describe(record)
        cause = self.cause_on_host() if record.broken else None
        if cause:
            reason = f"the group did not work, which {cause} explains"
            self.verdicts += skip_all(Source.GROUP, self.request.checks(Source.GROUP), reason)
        else:
            self.judge(Source.GROUP, record)
            self.verdicts = [_with_log(verdict, record) for verdict in self.verdicts]

    def _start_job(self, started: ExitStack, *, hold: bool = False) -> None:
        """Start torchrun, once; its ranks begin unless they are held."""
        if self.job is None and self.request.checks(Source.RUN):
            self.job = self._new_job()
            started.callback(self.job.stop)
        if self.job is not None and not hold:
            self.job.release()

    def _new_job(self) -> JobRun:
        launch, folder = self.request.host.launch, self.subfolder(JOB_FOLDER)
        if (job := self.request.job) is None:
            launch = trainer_launch(launch)
            job = bundled_trainer(launch, folder)
        follow = None if job.bundled else self.request.follow
        agreement = None if job.bundled else self.hosts.agreement
        policy = RunPolicy(
            self.request.options.hang_after,
            tell=self.progress.stage,
            when_looked=RunningScript(job, self.progress).show if self.progress.is_live else None,
            agreement=agreement,
        )
        torch, orphaned = self.request.host.torch_version, [self.folder]
        return JobRun(job, launch, folder, torch=torch, follow=follow, if_orphaned=orphaned, policy=policy)

    def _examine_run(self, group_broken: str | None, started: ExitStack) -> None:
        checks = self.request.checks(Source.RUN)
        if group_broken:
            what = "the trainer was not judged" if self.request.job is None else "the script was not run"
            self.verdicts += skip_all(Source.RUN, checks, f"{what}, since the group broke")
            return
        self._start_job(started)
        if self.job is None:
            return
        name = self.request.job.name if self.request.job else "the bundled trainer under torchrun"
        self.progress.stage(f"running {name}{how_long(self.request.job)}")
        trace = self.job.finish(self._deadline_of_job())
        confirmed = self.request.job is None or not may_come_from_cuts(trace, checks)
        # On several hosts they would all have to begin a second run.
        is_alone = self.request.host.launch.nnodes == 1
        if not confirmed and is_alone and self._seconds_left > LEAST_SECONDS:
            trace, confirmed = self._run_whole(trace, name, started), True
        if self.request.job is None:
            self._judge_trainer(trace)
            return
        trace, folders = self.hosts.run(trace)
        if not self.hosts.judges:
            self.trace = trace
            return
        self.judge_run(trace, folders)
        if not confirmed:
            self.verdicts = list(map(as_information, self.verdicts))
            self.notes.append(NOT_CONFIRMED)

    @property
    def _seconds_left(self) -> float:
        """For a script, before the recorder ends it in order."""
        return self.deadline - time.monotonic() - TIME_LIMIT_SLACK

    def _run_whole(self, cut: Trace, name: str, started: ExitStack) -> Trace:
        """Run the script without cuts: what that run shows is judged, and patches are verified by such runs."""
        job, seconds = self.request.job, self._seconds_left
        assert job is not None, "nothing of the bundled trainer is cut short"
        what = cut.broken or "a pass was cut short on some ranks only"
        self.progress.stage(f"running {name} again without cuts, {seconds:.0f} s at most: {what}")
        self.notes.append(
            f"the script was run a second time without cuts, and this is judged: in the first, {what}; {WHY}"
        )
        (self.folder / JOB_FOLDER).rename(self.folder / f"{JOB_FOLDER}-cut-short")
        # The second run ends in order at a training step where it takes too long.
        recorder = replace(job.recorder, batches=0, budget=LONGEST, time_limit=seconds)
        self.request = replace(self.request, job=replace(job, recorder=recorder))
        self.job = self._new_job()
        started.callback(self.job.stop)
        return self.job.finish(self.deadline)

    def _judge_trainer(self, trace: Trace) -> None:
        """The bundled trainer runs on each host by itself."""
        before = len(self.verdicts)
        self.judge_run(trace, [self.folder / JOB_FOLDER])
        self.verdicts[before:] = self.hosts.verdicts(self.verdicts[before:])

    def _end(self) -> Report:
        if self.hosts.judges:
            self.notes += self.hosts.notes
            report = self.compose()
            self.hosts.announce(report)
            return report
        if (reported := self.hosts.report_of_leader(self.started)) is not None:
            return reported
        if self.trace is not None:
            self.judge_run(self.hosts.alone(self.trace), [self.folder / JOB_FOLDER])
        self.notes += self.hosts.notes
        return self.compose()

    def _deadline_of_job(self) -> float:
        if self.request.job is None:
            return min(self.deadline, trainer_deadline(self.request.host.launch))
        limit = self.request.options.time_limit
        # The recorder ends it in order at a training step; by force, somewhat later.
        slack = 0.0 if self.request.job.recorder.full else TIME_LIMIT_SLACK
        return self.deadline if limit is None else min(self.deadline, time.monotonic() + limit + slack)

    def _describe(self, record: GroupRecord) -> None:
        self.hosts_of_ranks |= facts_by_rank(record.nodes)
        self.run["torch"] = record.torch or None
        self.run["hosts"] = len({rank.host for rank in record.ranks if rank.host}) or 1


def _with_log(verdict: Verdict, record: GroupRecord) -> Verdict:
    """What NCCL said under each diagnosis of the group; where the group broke, torch's last lines too."""
    if verdict.source is not Source.GROUP or not verdict.findings:
        return verdict
    lines = "\n".join(("what torch wrote last:", *record.log))
    output = (*record.nccl, *((Evidence(lines),) if record.broken and record.log else ()))
    return verdict.with_each(lambda finding: replace(finding, evidence=finding.evidence + output))


def _measurements(checks: tuple[Check, ...]) -> list[str]:
    wanted = {name for check in checks for name in check.measurements}
    return [name for name in ORDER if name in wanted]
