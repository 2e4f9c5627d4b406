"""Lets ranks wait until a file is written before they read it."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import barrier, rank_guard


def apply(case: Case) -> str:
    """A barrier before the line that reads."""
    source, statement = case.source, case.statement
    if rank_guard(source, statement) is not None:
        raise CannotPatch("it is read on some ranks only")
    source.insert_before(statement, barrier(source))
    return "a barrier before it is read"
