"""What a job printed, where what its ranks recorded names no more than the exception in which they ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ddpdoctor.check import Check
from ddpdoctor.job.job_folder import read_job
from ddpdoctor.job.torchrun import ERR, LOGS, OUT
from ddpdoctor.judge import Verdict
from ddpdoctor.logs import root_cause
from ddpdoctor.logs.input_files import streams
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.read import Stream, read
from ddpdoctor.logs.secondary_errors import first_death
from ddpdoctor.model import Role
from ddpdoctor.trace import Trace


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
