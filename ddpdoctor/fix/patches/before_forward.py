"""Does before the forward what must not come between it and its backward."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.wrappers import calls_of_wrappers


def apply(case: Case) -> str:
    """Move the loop that copies buffers in front of the forward."""
    source, backward = case.source, case.statement
    block = source.block(backward)
    before = block[: block.index(backward)]
    forwards = [statement for statement in before if calls_of_wrappers(source, statement)]
    between = before[before.index(forwards[-1]) + 1 :] if forwards else []
    moved = [
        statement
        for statement in between
        if isinstance(statement, cst.For)
        and ("buffer" in source.code(statement) or "copy_" in source.code(statement))
    ]
    if not moved:
        raise CannotPatch("no loop between forward and backward changes buffers")
    source.insert_before(forwards[-1], source.reindented(moved[0], ""))
    source.delete(moved[0])
    return "buffers changed before the forward"
