"""Lets ranks that have nothing to do for a while go on with the others, instead of leaving the function."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import DIST
from ddpdoctor.fix.reading import decides_by_rank
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.writing import plain_if

cures = ("DD305",)


def apply(case: Case) -> str:
    """Put what the other ranks skip by an early return under a condition for those that do it."""
    source = case.source
    statement = _where_others_wait(case)
    before = source.before(statement)
    leaves = [node for node in before if isinstance(node, ast.If) and _only_returns(source, node)]
    if not leaves:
        raise CannotPatch("no rank returns before the line in its block")
    left = plain_if(source, leaves[-1])
    skipped = before[before.index(left) + 1 :]
    source.delete_lines(left)
    if skipped:
        source.indent_lines(skipped, f"if {_opposite(source, left.test)}:")
    return "no rank returns before the others"


def _where_others_wait(case: Case) -> Node:
    """The statement at the line; where that is the return, the one behind it in which the others wait."""
    source, statement = case.source, case.statement
    if not isinstance(statement, ast.If):
        return statement
    line = next((entry.where.line for entry in case.finding.evidence if entry.where), None)
    for other in source.behind(statement):
        waits = any(_is_of_group(source, call) for call in source.all(ast.Call, within=other))
        if other.lineno <= line <= other.end_lineno if line is not None else waits:
            return other
    raise CannotPatch("what the others wait in is not behind the return")


def _is_of_group(source: Source, call: Node) -> bool:
    return any(name.startswith(f"{DIST}.") for name in source.expression(call.func).names)


def _only_returns(source: Source, node: Node) -> bool:
    first = node.body[0]
    return isinstance(first, ast.Return) and first.value is None and decides_by_rank(source, node.test)


def _opposite(source: Source, test: Node) -> str:
    code = source.code(test)
    is_unequal = isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.NotEq)
    return code.replace("!=", "==") if is_unequal and code.count("!=") == 1 else f"not ({code})"
