"""Clips after the last backward, right before the optimizer takes its step."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import calls
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.program.files import LOOPS

cures = ("DD218",)
tells = True


def apply(case: Case) -> str:
    """Move the clipping to the step."""
    source, statement = case.source, case.statement
    inside = source.enclosing(statement, *LOOPS) or source.scope(statement)
    steps = [call for call in calls(source, "step", within=inside) if call.lineno > statement.lineno]
    if not steps:
        raise CannotPatch("no step of an optimizer follows the clipping")
    clipping = _whole(source, statement, steps[0])
    step = source.enclosing(steps[0], ast.stmt)
    if source.begins_line(step):
        source.insert_before(step, source.reindented(clipping, ""))
    elif isinstance(clipping, ast.Expr):  # the step is in the line of its condition
        begin = source.span(step)[0]
        source.replace_span(begin, begin, f"{source.code(clipping)}; ")
    source.delete(clipping)
    return "clipping right before the step"


def _whole(source: Source, statement: Node, step: Node) -> Node:
    """The clipping with the conditions that are for it alone: ``if args.max_norm:``."""
    for around in source.within_function(statement):
        is_condition = isinstance(around, ast.If) and around.body == [statement] and not around.orelse
        if not is_condition or around.lineno <= step.lineno <= around.end_lineno:
            break
        statement = around
    return statement
