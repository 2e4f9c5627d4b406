"""Clips after the last backward, right before the optimizer takes its step."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.source import Node, Source

cures = ("DD218",)


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
    clipping = _whole(source, statement, steps[0])
    suite = source.enclosing(steps[0], cst.SimpleStatementSuite)
    if suite is None:
        source.insert_before(source.statement(steps[0]), source.reindented(clipping, ""))
    elif isinstance(clipping, cst.SimpleStatementLine):  # the step is in the line of its condition
        begin = source.span(suite.body[0])[0]
        source.replace_span(begin, begin, f"{source.code(clipping.body[0])}; ")
    source.delete(clipping)
    return "clipping right before the step"


def _whole(source: Source, statement: Node, step: Node) -> Node:
    """The clipping with the conditions that are for it alone: ``if args.max_norm:``."""
    around = source.enclosing(statement, cst.If, cst.For, cst.FunctionDef)
    while (
        isinstance(around, cst.If)
        and around.orelse is None
        and source.block(statement) == [statement]
        and not source.line(around) <= source.line(step) <= source.last_line(around)
    ):
        statement, around = around, source.enclosing(around, cst.If, cst.For, cst.FunctionDef)
    return statement
