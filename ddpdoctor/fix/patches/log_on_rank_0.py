"""Opens a log file on rank 0 alone."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.writing import is_rank_0, under_condition

cures = ("DD606",)


def apply(case: Case) -> str:
    """Put the statement under rank 0."""
    source, statement = case.source, case.statement
    if not isinstance(statement, ast.Expr):
        raise CannotPatch("the log file is opened where others need its value")
    under_condition(source, statement, is_rank_0(source, statement))
    return "the log file on rank 0 only"
