"""The judging of a training run: what its ranks recorded, what it printed where it broke, and the lines it left out."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ddpdoctor.check import Check
from ddpdoctor.cli.judging import Judging
from ddpdoctor.cli.notes import facts, notes, unfinished
from ddpdoctor.job.job_folder import is_as_it_ran, read_job, working_directory
from ddpdoctor.job.torchrun import ERR, LOGS, OUT
from ddpdoctor.judge import Verdict, judge_further, skip_all
from ddpdoctor.logs import root_cause
from ddpdoctor.logs.input_files import streams
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.read import Stream, read
from ddpdoctor.logs.secondary_errors import first_death
from ddpdoctor.model import Finding, Role, Source, Where
from ddpdoctor.trace import Trace
from ddpdoctor.trace.lines import program_of
from ddpdoctor.trace.not_reached import reached_lines
from ddpdoctor.unreached.lines import UnreachedLines


def with_output(
    verdicts: Sequence[Verdict],
    trace: Trace,
    folders: Sequence[Path],
    checks: Sequence[Check],
    on_error: Callable[[str], None],
) -> list[Verdict]:
    """The verdicts on a run that broke, and the cause that its output names where they name none.

    Args:
        verdicts: on what the ranks recorded.
        trace: the run.
        folders: the job's, one for each host.
        checks: those that look at output.
        on_error: is given the traceback of a check that broke.
    """
    if any(verdict.failed and verdict.names_cause for verdict in verdicts):
        return list(verdicts)
    log = read([stream for folder in folders for stream in _streams(folder)], root_cause.words(checks))
    told = [it for it in root_cause.examine(log, checks, on_error) if it.findings and it.names_cause]
    named = [verdict for verdict in told if not _came_after(verdict, log, trace)]
    codes = tuple(verdict.code for verdict in named if verdict.failed)
    ends = (finding for verdict in verdicts if not verdict.names_cause for finding in verdict.findings)
    place = next((finding.where for finding in ends if finding.where), None)

    def at_line(finding: Finding) -> Finding:
        """What ended it is at the script's line at which a rank ended, where the output names no line."""
        return replace(finding, where=finding.where or place)

    explained = [_explained(verdict, codes) for verdict in verdicts]
    return [*explained, *(it.with_each(at_line) if it.failed else it for it in named)]


def _came_after(verdict: Verdict, log: Log, trace: Trace) -> bool:
    """Whether it tells of the abort of a rank whose peer had ended by an exit status of its own."""
    first, died = trace.first_to_break(), first_death(log)
    if first is None or first.failure or not (first.exit_code or 0) > 0:
        return False
    if died is None or died.code != -signal.SIGABRT:
        return False
    seen = [(it.sighting and it.sighting.role, it.evidence) for it in verdict.findings]
    only_death = all(role is Role.DEATH and died.line.evidence in evidence for role, evidence in seen)
    return only_death and first.rank != (died.local_rank if died.rank is None else died.rank)


def _streams(folder: Path) -> list[Stream]:
    """What was written on one host; torchrun names its files by the local rank."""
    job = read_job(folder)
    node = job[1].node_rank if job else 0
    first = node * job[1].nproc if job else 0
    host = f"node {node}: " if job and job[1].nnodes > 1 else ""
    named = [(it, host + _short(Path(it.name), folder)) for it in streams(_files(folder))]
    return [replace(it, name=name, rank=None if it.rank is None else first + it.rank) for it, name in named]


def _short(file: Path, folder: Path) -> str:
    """A file of the run folder without what is the same for all: ``attempt_0/1/stderr.log``."""
    place = file.relative_to(folder)
    return str(Path(*place.parts[2:]) if place.parts[0] == LOGS else place)


def _files(folder: Path) -> list[str]:
    """What ranks and launcher wrote; empty files say nothing."""
    files = [*sorted((folder / LOGS).rglob("std*.log")), folder / OUT, folder / ERR]
    return [str(file) for file in files if file.exists() and file.stat().st_size]


def _explained(verdict: Verdict, codes: tuple[str, ...]) -> Verdict:
    """The verdict, which is dropped where it names no cause and another does."""
    if verdict.names_cause:
        return verdict
    return verdict.with_each(lambda it: replace(it, explained_by=(*it.explained_by, *codes)))


class RunJudging(Judging):
    """The verdicts of a command that runs a job, or judges an earlier one."""

    _job_folder: Path | None = None
    """The folder of the job that was judged."""

    def judge_run(self, trace: Trace, folders: Sequence[Path]) -> None:
        """Judge a training run by the job's folders, one for each host, and where it broke its output, too."""
        self.judged = trace
        self._job_folder = next(iter(folders), None)
        checks = self.request.checks(Source.RUN)
        self.unfinished = unfinished(trace, self.request.options.time_limit)
        cause = self.cause_on_host() if trace.broken else None
        if cause:
            what = "the trainer" if trace.bundled else "the script"
            self.verdicts += skip_all(Source.RUN, checks, f"{what} did not work, which {cause} explains")
        else:
            self.judge(Source.RUN, trace)
            self._read_output(trace, folders)
        self._judge_unreached(trace)
        for job in reversed(trace.before):
            self.verdicts += judge_further(Source.RUN, checks, job, self.log, self.verdicts)
        working = working_directory(folders[0])
        of_run = [verdict for verdict in self.verdicts if verdict.source is Source.RUN]
        self.notes += notes(trace, of_run, self.request.options.time_limit, working)
        self.run.update(facts(trace, working))
        if len(folders) > 1:
            self.run |= {"nproc": len(trace.ranks) // len(folders), "nnodes": len(folders)}
        self.hosts_of_ranks |= {rank.rank: rank.recording.host for rank in trace.ranks if rank.recording}

    def _judge_unreached(self, trace: Trace) -> None:
        """Judge the lines of a script to which no rank came, where that is known of every line."""
        whole = not (trace.broken or trace.before or trace.bundled or self.request.options.no_unreached)
        reached = reached_lines(trace.recorded) if whole else None
        if reached is None:
            return
        script = next(iter(trace.recorded.values())).script
        self.judge_lines(UnreachedLines(program_of(Where(script), trace.recorded), reached, ran=True))

    def _read_output(self, trace: Trace, folders: Sequence[Path]) -> None:
        """Of a script that broke, what it printed may tell more than its exception."""
        checks = self.request.checks(Source.LOG)
        if trace.broken and not (trace.timed_out or trace.bundled) and checks:
            rest = [verdict for verdict in self.verdicts if verdict.source is not Source.RUN]
            run = [verdict for verdict in self.verdicts if verdict.source is Source.RUN]
            self.verdicts = [*rest, *with_output(run, trace, folders, checks, self.log)]

    def in_own_words(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """The findings with fixes in the words of the user's script."""
        trace, folder = self.judged, self._job_folder
        if not findings or folder is None or trace is None or trace.bundled:
            return findings
        from ddpdoctor.fix.propose import in_own_words  # which a run without findings does not need

        return in_own_words(findings, trace, working_directory(folder), partial(is_as_it_ran, folder))
