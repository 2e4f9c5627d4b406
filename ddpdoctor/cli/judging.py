"""The judging of what was examined into one report, which names hosts beside ranks where there are several."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ddpdoctor import registry
from ddpdoctor.check import Check
from ddpdoctor.cli.notes import facts, notes, unfinished
from ddpdoctor.cli.page_sections import with_sections
from ddpdoctor.cli.request import Request
from ddpdoctor.job.job_folder import is_as_it_ran, read_job, working_directory
from ddpdoctor.job.torchrun import ERR, LOGS, OUT
from ddpdoctor.judge import Verdict, compose, judge_further, skip_all
from ddpdoctor.judge import judge as judge_all
from ddpdoctor.logs import root_cause
from ddpdoctor.logs.input_files import streams
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.read import Stream, read
from ddpdoctor.logs.secondary_errors import first_death
from ddpdoctor.model import Report, Role, Source, Where
from ddpdoctor.program import Program
from ddpdoctor.text import listing, ranks_phrase
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
    named = [
        verdict
        for verdict in root_cause.examine(log, checks, on_error)
        if verdict.findings and verdict.names_cause and not _came_after(verdict, log, trace)
    ]
    codes = tuple(verdict.code for verdict in named if verdict.failed)
    ends = (finding for verdict in verdicts if not verdict.names_cause for finding in verdict.findings)
    place = next((finding.where for finding in ends if finding.where), None)
    return [
        *(_explained(verdict, codes) for verdict in verdicts),
        # At the script's line at which a rank ended, where the output names no line.
        *(verdict.with_each(lambda it: replace(it, where=it.where or place)) for verdict in named),
    ]


def _came_after(verdict: Verdict, log: Log, trace: Trace) -> bool:
    """Whether it tells of the abort of a rank whose peer had ended by an exit status of its own."""
    first, died = trace.first_to_break(), first_death(log)
    if first is None or first.failure or not (first.exit_code or 0) > 0:
        return False
    if died is None or died.code != -signal.SIGABRT:
        return False
    only_death = all(
        finding.sighting and finding.sighting.role is Role.DEATH and died.line.evidence in finding.evidence
        for finding in verdict.findings
    )
    return only_death and first.rank != (died.local_rank if died.rank is None else died.rank)


def _streams(folder: Path) -> list[Stream]:
    """What was written on one host; torchrun names its files by the local rank."""
    job = read_job(folder)
    node = job[1].node_rank if job else 0
    first = node * job[1].nproc if job else 0
    host = f"node {node}: " if job and job[1].nnodes > 1 else ""
    return [
        replace(
            stream,
            name=host + _short(Path(stream.name), folder),
            rank=None if stream.rank is None else first + stream.rank,
        )
        for stream in streams(_files(folder))
    ]


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


class Judging:
    """The verdicts of one command, put together into its report.

    Args:
        folder: where what cannot go into the report is kept.
    """

    def __init__(self, request: Request, folder: Path) -> None:
        self.request, self.folder = request, folder
        self.started = time.monotonic()
        self.verdicts: list[Verdict] = []
        self.notes: list[str] = []
        self.run: dict[str, Any] = {}
        self.judged: Trace | None = None
        """The run that was judged."""
        self.hosts_of_ranks: dict[int, str] = {}
        """The host of each rank, as far as it is known."""
        self.since: float | None = None
        """When the run began that is judged, in seconds since the epoch; None where this command ran it."""
        self._job_folder: Path | None = None
        """The folder of the job that was judged."""
        self.unfinished: str | None = None
        """Why a source could not be examined to its end, where that is so."""

    def subfolder(self, name: str) -> Path:
        """A new folder for a part of the run."""
        folder = self.folder / name
        folder.mkdir()
        return folder

    def judge(self, source: Source, facts: Any) -> None:
        """Ask the checks of a source."""
        self.verdicts += judge_all(source, self.request.checks(source), facts, self.log)

    def log(self, text: str) -> None:
        """Write down what helps us, and nobody else."""
        with (self.folder / "run.log").open("a", encoding="utf-8") as log:
            log.write(text + "\n")

    def cause_on_host(self) -> str | None:
        """The code of a host finding that explains why ranks cannot start or meet."""
        breaking = {check.code for check in registry.all_checks() if check.breaks_group}
        for verdict in self.verdicts:
            if verdict.failed and verdict.code in breaking:
                return verdict.code
        return None

    def judge_run(self, trace: Trace, folders: Sequence[Path]) -> None:
        """Judge a training run, and where it broke its output, too.

        Args:
            folders: the job's, one for each host.
        """
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

    def judge_sources(self, scripts: Sequence[str]) -> None:
        """Judge scripts by their source alone."""
        checks = self.request.checks(Source.CODE)
        self.run |= {"nproc": 0, "backend": None, "script": " ".join(scripts)}
        self.notes.append("nothing was run: only what follows from the source is judged")
        for script in scripts:
            lines = UnreachedLines(Program.of(script))
            if lines.too_many:
                self.notes.append(lines.too_many)
                self.unfinished = lines.too_many
                continue
            self.verdicts += judge_further(Source.CODE, checks, lines, self.log, self.verdicts)

    def _judge_unreached(self, trace: Trace) -> None:
        """Judge the lines of a script to which no rank came, where that is known of every line."""
        whole = not (trace.broken or trace.before or trace.bundled or self.request.options.no_unreached)
        reached = reached_lines(trace.recorded) if whole else None
        if reached is None:
            return
        script = next(iter(trace.recorded.values())).script
        lines = UnreachedLines(program_of(Where(script), trace.recorded), reached, ran=True)
        if lines.too_many:
            self.notes.append(lines.too_many)
            return
        checks = self.request.checks(Source.CODE)
        self.verdicts += judge_further(Source.CODE, checks, lines, self.log, self.verdicts)

    def _read_output(self, trace: Trace, folders: Sequence[Path]) -> None:
        """Of a script that broke, what it printed may tell more than its exception."""
        checks = self.request.checks(Source.LOG)
        if trace.broken and not (trace.timed_out or trace.bundled) and checks:
            rest = [verdict for verdict in self.verdicts if verdict.source is not Source.RUN]
            run = [verdict for verdict in self.verdicts if verdict.source is Source.RUN]
            self.verdicts = [*rest, *with_output(run, trace, folders, checks, self.log)]

    def compose(self) -> Report:
        """All of it as one report."""
        launch, job = self.request.host.launch, self.request.job
        run = {
            "nproc": launch.nproc,
            "nnodes": launch.nnodes,
            "backend": launch.backend,
            "torch": None,
            "script": job.name if job else None,
            **self.run,
        }
        if (line := hosts_line(self.hosts_of_ranks)) and any(verdict.findings for verdict in self.verdicts):
            self.notes.append(line)
        report = compose(
            [with_hosts(verdict, self.hosts_of_ranks) for verdict in self.verdicts],
            run,
            self.started,
            fail_on=self.request.fail_on,
            notes=self.notes,
            unfinished=self.unfinished,
            hides=self.request.silencer.hides,
            since=self.since,
        )
        return with_sections(self._in_own_words(report), self.judged, self.request.options, self.log)

    def _in_own_words(self, report: Report) -> Report:
        """The report with fixes in the words of the user's script."""
        trace, folder = self.judged, self._job_folder
        if not report.findings:
            return report
        from ddpdoctor.fix.propose import in_own_words  # which a run without findings does not need

        findings = report.findings
        if self.request.options.no_run:
            findings = in_own_words(findings, Trace(()), Path.cwd(), lambda _: True)
        elif folder is not None and trace is not None and not trace.bundled:
            ran = partial(is_as_it_ran, folder)
            findings = in_own_words(findings, trace, working_directory(folder), ran)
        return replace(report, findings=findings)


_RANKS = re.compile(
    r"\b(?:rank (?P<one>\d+)|ranks (?P<several>\d+(?:-\d+)?(?:, \d+(?:-\d+)?)*))(?![\w'-])(?! on )"
)
_MOST = 3
"""Hosts named beside one group of ranks."""


def with_hosts(verdict: Verdict, hosts: Mapping[int, str]) -> Verdict:
    """The verdict whose headlines name the hosts of ranks; as it is where all ranks are on one host.

    Args:
        hosts: the host of each rank.
    """
    if len({*hosts.values()}) < 2:
        return verdict
    return verdict.with_each(
        lambda it: replace(it, headline=_RANKS.sub(lambda match: _with_names(match, hosts), it.headline))
    )


def hosts_line(hosts: Mapping[int, str]) -> str | None:
    """``ranks 0-3 on node0, ranks 4-7 on node1``; None where all are on one host."""
    names = dict.fromkeys(hosts.values())
    if len(names) < 2:
        return None
    ranks = {name: [rank for rank, host in hosts.items() if host == name] for name in names}
    return ", ".join(f"{ranks_phrase(here)} on {name}" for name, here in ranks.items())


def _with_names(match: re.Match[str], hosts: Mapping[int, str]) -> str:
    ranks = _ranks(match["one"] or match["several"])
    names = [name for name in dict.fromkeys(hosts.values()) if any(hosts.get(rank) == name for rank in ranks)]
    known = all(rank in hosts for rank in ranks)
    before = match.string[: match.start()]
    # All ranks of the job, or a number that is no rank; or a host with its ranks in parentheses.
    if not known or len(names) == len({*hosts.values()}) or before.endswith(f"{names[0]} ("):
        return match[0]
    return f"{match[0]} on {listing(names, _MOST)}"


def _ranks(text: str) -> list[int]:
    ranks: list[int] = []
    for part in text.split(", "):
        first, _, last = part.partition("-")
        ranks += range(int(first), int(last or first) + 1)
    return ranks
