"""Does once what a loop over the ranks does for each of them."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case


def apply(case: Case) -> str:
    """Take the loop around the line away."""
    source, statement = case.source, case.statement
    loop = source.enclosing(statement, cst.For)
    if loop is None or "world_size" not in source.code(loop.iter) or list(loop.body.body) != [statement]:
        raise CannotPatch("it is in no loop over the ranks")
    source.insert_before(loop, source.reindented(statement, ""))
    source.delete_lines(loop)
    return f"{source.code(statement)} once"
