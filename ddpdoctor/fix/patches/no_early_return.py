"""Lets ranks that have nothing to do for a while go on with the others, instead of leaving the function."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import plain_if, rank_guard
from ddpdoctor.fix.names import DIST, qualified
from ddpdoctor.fix.source import Node, Source

cures = ("DD305",)


def apply(case: Case) -> str:
    """Put what the other ranks skip by an early return under a condition for those that do it."""
    source = case.source
    statement = _where_others_wait(case)
    block = source.block(statement)
    before = block[: block.index(statement)]
    leaves = [node for node in before if isinstance(node, cst.If) and _only_returns(source, node)]
    if not leaves:
        raise CannotPatch("no rank returns before the line in its block")
    left = plain_if(source, leaves[-1])
    skipped = before[before.index(left) + 1 :]
    source.delete_lines(left)
    if skipped:
        source.indent_lines(skipped[0], f"if {_opposite(source, left.test)}:")
    for other in skipped[1:]:
        source.indent_only(other)
    return "no rank returns before the others"


def _where_others_wait(case: Case) -> Node:
    """The statement at the line; where that is the return, the one behind it in which the others wait."""
    source, statement = case.source, case.statement
    if not isinstance(statement, cst.If):
        return statement
    block = source.block(statement)
    behind = block[block.index(statement) + 1 :]
    line = next((entry.where.line for entry in case.finding.evidence if entry.where), None)
    if line is not None:
        waits = [other for other in behind if source.line(other) <= line <= source.last_line(other)]
    else:
        waits = [
            other
            for other in behind
            if any(_is_of_group(source, call) for call in source.all(cst.Call, within=other))
        ]
    if not waits:
        raise CannotPatch("what the others wait in is not behind the return")
    return waits[0]


def _is_of_group(source: Source, call: Node) -> bool:
    return (qualified(source, call.func) or "").startswith(f"{DIST}.")


def _only_returns(source: Source, node: Node) -> bool:
    first = node.body.body[0]
    is_return = isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Return)
    return is_return and first.body[0].value is None and rank_guard(source, first) is node


def _opposite(source: Source, test: Node) -> str:
    code = str(source.code(test))
    if code.count("!=") == 1 and " and " not in code and " or " not in code:
        return code.replace("!=", "==")
    return f"not ({code})"
