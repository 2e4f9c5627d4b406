"""What a job printed, where what its ranks recorded names no more than the exception in which they ended."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ddpdoctor.check import Check
from ddpdoctor.job.command import TORCHRUN_LOGS
from ddpdoctor.job.run_folder import ERR, OUT
from ddpdoctor.judge import Verdict
from ddpdoctor.logs import blame
from ddpdoctor.logs.log import Log
from ddpdoctor.logs.messengers import first_death
from ddpdoctor.logs.read import read
from ddpdoctor.logs.sources import streams
from ddpdoctor.model import Level
from ddpdoctor.trace import Trace

_AN_EXCEPTION = "DD304"
_A_SIGNAL = "DD012"
_NAMES_NO_CAUSE = (_AN_EXCEPTION, "DD301", "DD311", "DD312")
"""What these say of an output, the records say better."""


def with_output(
    verdicts: Sequence[Verdict],
    trace: Trace,
    folder: Path,
    checks: Sequence[Check],
    on_error: Callable[[str], None],
) -> list[Verdict]:
    """The verdicts on a run that broke, and the cause that its output names where they name none.

    Args:
        verdicts: on what the ranks recorded.
        trace: the run.
        folder: the job's.
        checks: those that look at output.
        on_error: is given the traceback of a check that broke.
    """
    found = {finding.code for one in verdicts for finding in one.findings if finding.level is Level.FAIL}
    if found - {_AN_EXCEPTION}:
        return list(verdicts)
    log = read(streams(_files(folder)), blame.words(checks))
    named = [
        one
        for one in blame.examine(log, checks, on_error)
        if one.findings and one.code not in _NAMES_NO_CAUSE and not _came_after(one, log, trace)
    ]
    codes = tuple(one.code for one in named if one.failed)
    return [*(_explained(one, codes) for one in verdicts), *named]


def _came_after(verdict: Verdict, log: Log, trace: Trace) -> bool:
    """Whether it tells of the abort of a rank whose peer had ended by an exit status of its own."""
    first, died = trace.first_to_break(), first_death(log)
    if verdict.code != _A_SIGNAL or first is None or first.failure or not (first.exit_code or 0) > 0:
        return False
    if died is None or died.code != -signal.SIGABRT:
        return False
    told = all(died.line.evidence in one.evidence for one in verdict.findings)
    return told and first.rank != (died.local_rank if died.rank is None else died.rank)


def _files(folder: Path) -> list[str]:
    """What ranks and launcher wrote; empty files say nothing."""
    own = [*sorted((folder / TORCHRUN_LOGS).rglob("std*.log")), folder / OUT, folder / ERR]
    return [str(file) for file in own if file.exists() and file.stat().st_size]


def _explained(verdict: Verdict, codes: tuple[str, ...]) -> Verdict:
    """The verdict on the exception, which is dropped where its cause was found."""
    if verdict.code != _AN_EXCEPTION:
        return verdict
    findings = (replace(one, explained_by=(*one.explained_by, *codes)) for one in verdict.findings)
    return replace(verdict, findings=tuple(findings))
