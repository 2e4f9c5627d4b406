"""Dumps of the flight recorder among the files that ``explain`` is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.blame.hang_snapshot import HangSnapshot
from ddpdoctor.cli.errors import UsageError
from ddpdoctor.hang.flight.dumped_job import CAUSES
from ddpdoctor.hang.flight.folder import Dumps, files_of, read_files
from ddpdoctor.hang.flight.reading import looks_like_dump, rank_of
from ddpdoctor.judge import Verdict, judge
from ddpdoctor.model import Role, Source
from ddpdoctor.redact import quote
from ddpdoctor.text import plural, ranks_phrase
from ddpdoctor.trace import Trace

_EXPLAINED_ROLES = (Role.MESSENGER, Role.ATTEMPT, Role.UNKNOWN)
"""Of lines that tell no more than that something was waited for or tried."""


@dataclass(frozen=True)
class ExplainInputs:
    """What ``explain`` is given, taken apart."""

    dumps: dict[Path, int]
    """The files that are dumps, and their ranks."""
    others: list[str]
    """The paths that are read as a job's output; a folder that holds nothing but dumps is none."""


def split_inputs(paths: Sequence[str]) -> ExplainInputs:
    """Tell dumps from a job's output.

    Raises:
        UsageError: the name of a dump does not tell its rank.
    """
    given = ExplainInputs({}, [])
    for path in paths:
        files = files_of(Path(path)) if Path(path).exists() else []
        dumps = [file for file in files if looks_like_dump(file)]
        for file in dumps:
            if (rank := rank_of(file)) is not None:
                given.dumps[file] = rank
            elif file == Path(path):
                raise UsageError(
                    f"the name of the dump {quote(path)} does not contain its rank, as fr_rank_0 does"
                )
        if not dumps or len(dumps) < len(files):
            given.others.append(path)
    return given


def judge_dumps(
    files: dict[Path, int], log: Callable[[str], None]
) -> tuple[list[Verdict], tuple[str, ...], Trace]:
    """What the checks say of the job that left these dumps, notes for the report, and the job.

    Raises:
        UsageError: none of them can be read.
    """
    dumps = read_files(files)
    if not dumps.ranks:
        raise UsageError(_why_none(dumps))
    trace = Trace((), snapshot=HangSnapshot(flight=dumps.ranks, unseen=dumps.left_out))
    checks = {check.code: check for check in map(registry.by_cause, CAUSES)}
    verdicts = judge(Source.RUN, [checks[code] for code in sorted(checks)], trace, log)
    read = f"read {plural(len(dumps.ranks), 'dump')}, of {ranks_phrase(dumps.ranks)}"
    return verdicts, (read, *dumps.left_out), trace


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
