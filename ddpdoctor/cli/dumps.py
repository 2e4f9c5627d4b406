"""Dumps of the flight recorder among the files that ``explain`` is given."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.blame.hang_snapshot import HangSnapshot
from ddpdoctor.blame.liveness import snapshot_state
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.hang_report import HangSource, verdict_of
from ddpdoctor.hang.flight.dumped_job import CAUSES
from ddpdoctor.hang.flight.folder import Dumps, files_of, read_files
from ddpdoctor.hang.flight.reading import looks_like_dump, rank_of
from ddpdoctor.hang.stacks import looks_like_stacks, read_stacks
from ddpdoctor.judge import Verdict, judge
from ddpdoctor.model import Role, Source
from ddpdoctor.redact import quote
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace
from ddpdoctor.trace.live import live_trace
from ddpdoctor.trace.reader import Recorded

_EXPLAINED_ROLES = (Role.MESSENGER, Role.ATTEMPT, Role.UNKNOWN)
"""Of lines that tell no more than that something was waited for or tried."""


@dataclass(frozen=True)
class ExplainInputs:
    """What ``explain`` is given, taken apart."""

    dumps: dict[Path, int]
    """The files that are dumps, and their ranks."""
    stacks: list[Path]
    """The files that hold stacks."""
    others: list[str]
    """The paths that are read as a job's output; a folder that holds nothing but dumps is none."""


def split_inputs(paths: Sequence[str]) -> ExplainInputs:
    """Tell dumps from a job's output; UsageError where the name of a dump does not tell its rank."""
    given = ExplainInputs({}, [], [])
    for path in paths:
        files = files_of(Path(path)) if Path(path).exists() else []
        dumps = [file for file in files if looks_like_dump(file)]
        stacks = [file for file in files if looks_like_stacks(file)]
        given.stacks.extend(stacks)
        for file in dumps:
            if (rank := rank_of(file)) is not None:
                given.dumps[file] = rank
            elif file == Path(path):
                dump = quote(path)
                raise UsageError(f"the name of the dump {dump} does not contain its rank, as fr_rank_0 does")
        if not files or len(dumps) + len(stacks) < len(files):
            given.others.append(path)
    return given


def snapshot_of(files: dict[Path, int], stacks: Sequence[Path]) -> tuple[HangSnapshot, tuple[str, ...]]:
    """What dumps and stacks show together, and notes for the report; UsageError where none of them can be read."""
    dumps, seen = read_files(files), read_stacks(stacks)
    if files and not dumps.ranks:
        raise UsageError(_why_none(dumps))
    if stacks and not (dumps.ranks or seen.ranks or seen.world_size):
        stack = quote(str(stacks[0]))
        raise UsageError(f"neither {stack} nor its name tells the rank, as pyspy_rank_3.txt does")
    unseen, flight = (*dumps.left_out, *seen.unseen), {**seen.flight, **dumps.ranks}
    notes = [f"read {plural(len(flight), 'dump')}, of {ranks_phrase(flight)}"] if flight else []
    notes += [f"read the stacks of {ranks_phrase(seen.ranks)}"] if seen.ranks else []
    return replace(seen, flight=flight, unseen=unseen), (*notes, *unseen)


def judge_dumps(
    files: dict[Path, int], stacks: Sequence[Path], log: Callable[[str], None]
) -> tuple[list[Verdict], tuple[str, ...], Trace]:
    """What the checks say of the job that left these dumps and stacks, notes for the report, and the job; UsageError
    where none of them can be read."""
    snapshot, notes = snapshot_of(files, stacks)
    if snapshot.processes:
        source = source_of(snapshot)
        return [verdict_of(source)], notes, source.trace
    trace = Trace((), snapshot=snapshot)
    checks = {check.code: check for check in map(registry.by_cause, CAUSES)}
    return judge(Source.RUN, [checks[code] for code in sorted(checks)], trace, log), notes, trace


def source_of(snapshot: HangSnapshot) -> HangSource:
    """What stacks of ranks, dumps or both give to judge."""
    if not snapshot.processes:
        return HangSource(Trace(ranks=(), snapshot=snapshot))
    return HangSource(live_trace(snapshot, Recorded()), snapshot_state(snapshot))


def _why_none(dumps: Dumps) -> str:
    file, reason = next(iter(dumps.refused.items()))
    return f"the dump {quote(str(file))} cannot be read: {reason}"


def without_messengers(verdicts: Sequence[Verdict], of_log: Sequence[Verdict]) -> list[Verdict]:
    """What the output says, less what only tells of a wait that the dumps explain."""
    if not any(verdict.findings for verdict in verdicts):
        return list(of_log)
    explained = {verdict.code for verdict in verdicts if verdict.findings}
    return [
        verdict
        for verdict in of_log
        if not verdict.failed or (verdict.code not in explained and not _is_messenger(verdict))
    ]


def _is_messenger(verdict: Verdict) -> bool:
    sightings = [finding.sighting for finding in verdict.findings]
    return all(sighting and sighting.role in _EXPLAINED_ROLES for sighting in sightings)
