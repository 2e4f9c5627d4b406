"""Whether only some ranks are meant to come to a line: by what ranks did, or else by the text of the program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ddpdoctor.model import Evidence, Where
from ddpdoctor.program import Program
from ddpdoctor.trace.lines import JobLines
from ddpdoctor.trace.recording import Recording

_OFTEN = 2
"""Steps in which ranks part at a condition each time, each the same way, before it is one on the rank."""


def is_for_some_ranks(where: Where | None, recordings: Mapping[int, Recording]) -> bool:
    """Whether a line stands under a condition on the rank, or is only led to by a call that does."""
    return where is not None and (
        _is_guarded(where, recordings) or guarded_call(where, recordings) is not None
    )


def guarded_call(where: Where | None, recordings: Mapping[int, Recording]) -> Where | None:
    """The call under a condition on the rank that leads to a line which itself is under none.

    None where the line is under one, and where several such calls lead to it, or none.
    """
    job, visited = JobLines.of(recordings), set[Where]()
    while where is not None and where not in visited:
        if _is_guarded(where, recordings):
            return None
        visited.add(where)
        calls = _calls(where, job, recordings)
        guarded = [call for call in calls if _is_guarded(call, recordings)]
        if len(guarded) == 1:
            return guarded[0]
        if guarded or len(calls) != 1:
            return None
        where = calls[0]
    return None


def decision(where: Where | None, recordings: Mapping[int, Recording]) -> tuple[Evidence, ...]:
    """What the condition in front of a line looked at on each rank, where it kept some ranks from it."""
    job = JobLines.of(recordings)
    guard = job.guard(where) if job is not None and where is not None else None
    return guard.parting.evidence() if guard is not None else ()


def _calls(where: Where, job: JobLines | None, recordings: Mapping[int, Recording]) -> list[Where]:
    """The lines that call the function of a line: those that led to it, where that was recorded."""
    led = {(it.file, it.line): replace(it, columns=None) for it in job.leading_calls(where)} if job else {}
    return list(led.values()) or program_of(where, recordings).callers(where)


def _is_guarded(where: Where, recordings: Mapping[int, Recording]) -> bool:
    job = JobLines.of(recordings)
    if job is not None and (reaching := job.ranks_reaching(where)):
        if len(reaching) == len(job.ranks):
            return False
        guard = job.guard(where)
        if guard is not None and (guard.times >= _OFTEN or not guard.always):
            return guard.always
    return program_of(where, recordings).guard(where) is not None


def program_of(where: Where, recordings: Mapping[int, Recording]) -> Program:
    """The program of a job, or the one that a line's file is of where the job's does not have it."""
    return Program.holding(where, next((it.script for it in recordings.values() if it.script), ""))
