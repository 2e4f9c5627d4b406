"""Writes a file on rank 0 alone, and lets the others wait for it."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import barrier, is_rank_0, under_rank_0
from ddpdoctor.fix.source import Node, Source


def apply(case: Case) -> str:
    """Put the statement that writes under rank 0, with a barrier behind it."""
    source = case.source
    statement = written(source, case.statement)
    if isinstance(statement, cst.FunctionDef):
        raise CannotPatch("the line is no statement that writes")
    under_rank_0(source, statement, is_rank_0(source, statement))
    source.insert_after(statement, barrier(source))
    return "written on rank 0, with a barrier behind it"


def written(source: Source, statement: Node) -> Node:
    """The with statement that opens the file, where the line is in one; else the statement itself."""
    around = source.enclosing(statement, cst.With, cst.FunctionDef, cst.For, cst.If)
    if isinstance(around, cst.With) and "open(" in source.code(around.items[0].item):
        return around
    return statement
