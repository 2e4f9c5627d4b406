"""The report of ``ddpdoctor hang``: one cause, or what each rank does where nothing hangs."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

from ddpdoctor import __version__, registry
from ddpdoctor.blame.causes import NeverCame
from ddpdoctor.blame.liveness import JobState
from ddpdoctor.blame.standstill import Standstill
from ddpdoctor.model import CheckResult, Finding, Level, Outcome, Report
from ddpdoctor.text import quote_command
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recorded_job import RecordedJob, cause_of_run


@dataclass(frozen=True)
class Looked:
    """What is judged, and what the report says of it."""

    trace: Trace
    state: JobState = JobState.HUNG
    command: tuple[str, ...] = ()
    records: Path | None = None
    """Where our recorder writes, in a job that runs under it."""


def report_of(looked: Looked, seconds: float) -> Report:
    """The report of a look that took so many seconds."""
    finding = _finding(looked)
    trace, standstill = looked.trace, looked.trace.standstill or Standstill()
    ranks = sorted({*standstill.ranks, *standstill.flight})
    return Report(
        version=__version__,
        command=tuple(sys.argv[1:]),
        exit_status=int(finding is not None and finding.level is Level.FAIL),
        seconds=seconds,
        checks=(_line(looked, finding, seconds),),
        findings=(finding,) if finding else (),
        run={
            **_size(standstill, len(ranks)),
            "script": quote_command(looked.command) if looked.command else None,
            "hang": {
                "state": looked.state.value,
                "world_size": trace.world_size,
                "processes": _rows(standstill),
            },
        },
        notes=standstill.unseen if finding is None else (),
    )


def _size(standstill: Standstill, ranks: int) -> dict[str, int]:
    """Ranks of a node and nodes, where each has as many; else all ranks."""
    hosts = len({process.host for process in standstill.processes}) or 1
    return {"nproc": ranks, "nnodes": 1} if ranks % hosts else {"nproc": ranks // hosts, "nnodes": hosts}


def _finding(looked: Looked) -> Finding | None:
    """What is found; where a rank works while others wait, no more than a warning."""
    if looked.state is JobState.MOVES:
        return None
    slow = looked.state is JobState.SLOW
    cause = cause_of_run(replace(looked.trace, out_of_time=True) if slow else looked.trace)
    finding = registry.by_cause(type(cause)).report(cause) if cause else None
    return None if finding and slow and finding.level is Level.FAIL else finding


def _line(looked: Looked, finding: Finding | None, seconds: float) -> CheckResult:
    check = registry.by_code(finding.code) if finding else None
    if check and finding:
        outcome = Outcome(finding.level.value)
        return CheckResult(check.code, check.name, check.family, outcome, finding.headline)
    check = registry.by_cause(NeverCame)
    where = RecordedJob(looked.trace).short_states if looked.trace.ranks else ()
    text = "no rank is blocked on a missing rank"
    return CheckResult(check.code, check.name, check.family, Outcome.PASS, text, evidence=where)


def _rows(standstill: Standstill) -> list[dict[str, object]]:
    """Each process, for programs."""
    return [
        {
            "pid": process.pid,
            "host": process.host,
            "rank": process.rank,
            "role": process.role.value,
            "doing": process.doing.value,
            "call": process.call,
            "stands": process.stands,
            "stack": [str(frame) for frame in process.stack],
            "native": list(process.native),
        }
        for process in standstill.processes
    ]
