"""The report of ``ddpdoctor hang``: one cause, or what each rank does where nothing hangs."""

from dataclasses import dataclass, replace
from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.blame.causes import NeverCame
from ddpdoctor.blame.hang_snapshot import HangSnapshot
from ddpdoctor.blame.liveness import JobState
from ddpdoctor.judge import Verdict, compose
from ddpdoctor.model import Level, Passed, Report, Source
from ddpdoctor.text import quote_command
from ddpdoctor.trace import Trace
from ddpdoctor.trace.recorded_job import RecordedJob, cause_of_run


@dataclass(frozen=True)
class HangSource:
    """What is judged, and what the report says of it."""

    trace: Trace
    state: JobState = JobState.HUNG
    command: tuple[str, ...] = ()
    records: Path | None = None
    """Where our recorder writes, in a job that runs under it."""
    since: float | None = None
    """When the job began, or was looked at, in seconds since the epoch."""


def report_of(source: HangSource, started: float) -> Report:
    """The report of a look that began at a time of the monotonic clock."""
    verdict = verdict_of(source)
    trace, snapshot = source.trace, source.trace.snapshot or HangSnapshot()
    ranks = sorted({*snapshot.ranks, *snapshot.flight})
    run = {
        **_size(snapshot, len(ranks)),
        "script": quote_command(source.command) if source.command else None,
        "hang": {
            "state": source.state.value,
            "world_size": trace.world_size,
            "processes": _rows(snapshot),
        },
    }
    notes = () if verdict.findings and not snapshot.flight else snapshot.unseen
    return compose([verdict], run, started, fail_on=Level.FAIL, notes=notes, since=source.since)


def _size(snapshot: HangSnapshot, ranks: int) -> dict[str, int]:
    """Ranks of a node and nodes, where each has as many; else all ranks."""
    hosts = len({process.host for process in snapshot.processes}) or 1
    return {"nproc": ranks, "nnodes": 1} if ranks % hosts else {"nproc": ranks // hosts, "nnodes": hosts}


def verdict_of(source: HangSource) -> Verdict:
    """What is found; where a rank works while others wait, no more than a warning."""
    slow = source.state is JobState.SLOW
    cause = None
    if source.state is not JobState.MOVES:
        cause = cause_of_run(replace(source.trace, out_of_time=True) if slow else source.trace)
    check = registry.by_cause(type(cause) if cause else NeverCame)
    finding = check.report(cause) if cause else None
    if finding is None or (slow and finding.level is Level.FAIL):
        check = registry.by_cause(NeverCame)
        states = RecordedJob(source.trace).short_states if source.trace.ranks else ()
        return Verdict(check, Source.RUN, passed=Passed("no rank is blocked on a missing rank", states))
    return Verdict(check, Source.RUN, findings=(finding,))


def _rows(snapshot: HangSnapshot) -> list[dict[str, object]]:
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
        for process in snapshot.processes
    ]
