"""Lets all ranks decide alike: a condition is true where it is on any rank."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import any_rank, plain_if
from ddpdoctor.fix.names import free
from ddpdoctor.fix.source import Node, Source

_LEAVES = (cst.Break, cst.Continue, cst.Return)


def apply(case: Case) -> str:
    """Reduce the condition at the line, or the one before it by which ranks leave."""
    source = case.source
    condition = _condition(source, case)
    plain_if(source, condition)
    name = free(source, condition, "decision")
    source.insert_before(condition, any_rank(source, condition, source.code(condition.test), name))
    source.replace(condition.test, f"{name}.item()")
    return "the same decision on every rank"


def _condition(source: Source, case: Case) -> Node:
    at_line = [node for node in source.on_line(case.line, cst.If) if source.line(node) == case.line]
    if at_line and _leaves(source, at_line[0]):
        return at_line[0]
    block = source.block(case.statement)
    before = [
        node
        for node in block
        if isinstance(node, cst.If) and source.line(node) < case.line and _leaves(source, node)
    ]
    if not before:
        raise CannotPatch("no condition by which a rank leaves is beside it")
    return before[-1]


def _leaves(source: Source, condition: Node) -> bool:
    return bool(source.all(*_LEAVES, within=condition))
