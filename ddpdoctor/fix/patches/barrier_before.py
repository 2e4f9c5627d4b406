"""Lets ranks wait until a file is written before they read it."""

from __future__ import annotations

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.patches.write_on_rank_0 import written
from ddpdoctor.fix.reading import all_come_to
from ddpdoctor.fix.writing import barrier

cures = ("DD401",)


def apply(case: Case) -> str:
    """A barrier before the line that reads."""
    source = case.source
    statement = written(source, case.statement)
    if not all_come_to(source, statement):
        raise CannotPatch("it is read on some ranks only")
    source.insert_before(statement, barrier(source))
    return "a barrier before it is read"
