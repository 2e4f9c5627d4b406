"""Clips after the last backward, right before the optimizer takes its step."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case


def apply(case: Case) -> str:
    """Move the clipping to the step."""
    source, statement = case.source, case.statement
    steps = [
        call
        for call in source.all(
            cst.Call, within=source.enclosing(statement, cst.For) or source.scope(statement)
        )
        if isinstance(call.func, cst.Attribute)
        and call.func.attr.value == "step"
        and source.line(call) > source.line(statement)
    ]
    if not steps:
        raise CannotPatch("no step of an optimizer follows the clipping")
    source.insert_before(source.statement(steps[0]), source.code(statement))
    source.delete(statement)
    return "clipping right before the step"
