"""Opens a log file on rank 0 alone."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import is_rank_0, under_rank_0

cures = ("DD606",)


def apply(case: Case) -> str:
    """Put the statement under rank 0."""
    source, statement = case.source, case.statement
    if not isinstance(statement, cst.SimpleStatementLine) or not isinstance(statement.body[0], cst.Expr):
        raise CannotPatch("the log file is opened where others need its value")
    under_rank_0(source, statement, is_rank_0(source, statement))
    return "the log file on rank 0 only"
