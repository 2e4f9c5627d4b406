"""Reads the folder into which the processes of a run recorded themselves."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ddpdoctor.memory import uncollected
from ddpdoctor.recorder.events.process import GroupEvent, Start
from ddpdoctor.recorder.events.schema import SCHEMA
from ddpdoctor.trace.attempts import Span, Worker, of_earlier_attempts, successive_jobs, worker
from ddpdoctor.trace.record import Record, lines_of
from ddpdoctor.trace.recording import Recording, recording_of

_LAUNCHERS = ("torch.distributed.run", "torch.distributed.launch", "torchrun", "accelerate")


@dataclass(frozen=True)
class Recorded:
    """All processes that recorded themselves."""

    ranks: Mapping[int, Recording] = field(default_factory=dict)
    others: tuple[Recording, ...] = ()
    """Those that joined no process group and were given no rank; a launcher is not among them."""
    lost: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The ranks of each host without which torchrun started the job anew."""
    before: tuple[Mapping[int, Recording], ...] = ()
    """The ranks of the jobs that the launch line ran before this one, in their order."""


def read_run(folder: Path, until: float = math.inf) -> Recorded:
    """Read every record in a folder; what is cut short or not ours is left out.

    Args:
        until: on the clock of the records; what was written later is left out too.
    """
    with uncollected():
        return _read_run(folder, until)


def _read_run(folder: Path, until: float) -> Recorded:
    read = (_ProcessRecord.of(file, until) for file in sorted(folder.glob("*.jsonl")))
    processes = [process for process in read if process]
    by_pid = {process.start.pid: process for process in processes}
    for process in processes:
        parent = by_pid.get(process.start.parent)
        if parent is None or parent is process or process.record.events(GroupEvent):
            continue
        if parent.given_rank == process.given_rank:  # a worker inherits it; a rank's is not its launcher's
            parent.children.append(process.record)
            by_pid.pop(process.start.pid)
    return _sort([recording_of(process.record, process.children) for process in by_pid.values()])


def _sort(recordings: list[Recording]) -> Recorded:
    # After a restart the last counts.
    workers = {number: it for number, it in enumerate(map(_worker, recordings)) if it}
    earlier = of_earlier_attempts(workers)
    *before, ranks = map(
        _by_rank, _jobs([it for number, it in enumerate(recordings) if number not in earlier])
    )
    others = (recording for recording in recordings if recording.rank is None)
    others = (recording for recording in others if not recording.script.endswith(_LAUNCHERS))
    lost = _lost([recordings[number] for number in sorted(earlier)], {it.host for it in ranks.values()})
    script = {rank.script for rank in ranks.values()}
    return Recorded(
        ranks, tuple(others), lost, tuple(job for job in before if not _was_repeated(job, script))
    )


def _jobs(recordings: Iterable[Recording]) -> list[list[Recording]]:
    """The processes of each job, of those that have process groups, where there is one; the last one last."""
    of_ranks = [recording for recording in recordings if recording.rank is not None]
    spans = {
        number: Span(it.host, it.rank, it.started, it.last)
        for number, it in enumerate(of_ranks)
        if it.rank is not None
    }
    jobs = [[of_ranks[number] for number in sorted(numbers)] for numbers in successive_jobs(spans)]
    return [job for job in jobs if any(it.groups for it in job)] or jobs[-1:] or [[]]


def _by_rank(job: Iterable[Recording]) -> dict[int, Recording]:
    """Where several took one rank, it is those that were given another that went wrong."""
    ranks: dict[int, Recording] = {}
    for recording in sorted(job, key=lambda it: (_took_another(it), it.started)):
        if recording.rank is not None and (recording.groups or recording.rank not in ranks):
            ranks[recording.rank] = recording
    return dict(sorted(ranks.items()))


def _was_repeated(job: Mapping[int, Recording], later: Container[str]) -> bool:
    """Whether a job failed, and its script was started again, as a loop in a shell does."""
    failed = any(it.raised or it.exit is None or it.exit.status for it in job.values())
    return failed and any(it.script in later for it in job.values())


def _lost(earlier: Iterable[Recording], present: Container[str]) -> dict[str, tuple[int, ...]]:
    """The ranks that each host had at last which takes no part any more."""
    ranks: dict[str, dict[str, int]] = {}
    for recording in sorted(earlier, key=lambda it: it.started):
        if recording.rank is not None and recording.host not in present:
            ranks.setdefault(recording.host, {})[recording.environ["LOCAL_RANK"]] = recording.rank
    return {host: tuple(sorted(by_place.values())) for host, by_place in ranks.items()}


def _worker(recording: Recording) -> Worker | None:
    """The process as torchrun started it; None where something else did."""
    start = next(iter(recording.events(Start)), None)
    if start is None:
        return None
    return worker(recording.environ, recording.host, start.parent, recording.started, recording.last)


def _took_another(recording: Recording) -> bool:
    """Whether it joined with another rank than its launcher gave it."""
    return bool(recording.groups) and recording.environ.get("RANK", str(recording.rank)) != str(
        recording.rank
    )


@dataclass
class _ProcessRecord:
    """One file."""

    record: Record
    start: Start
    children: list[Record] = field(default_factory=list)
    """The records of its workers."""

    @classmethod
    def of(cls, file: Path, until: float) -> _ProcessRecord | None:
        """Read a file; None where it is no record that this version can read."""
        record = Record(lines_of(file), until, file)
        start = next(iter(record.events(Start)), None)
        return cls(record, start) if start is not None and start.schema == SCHEMA else None

    @property
    def given_rank(self) -> str | None:
        """RANK in its environment."""
        return self.start.environ.get("RANK")
