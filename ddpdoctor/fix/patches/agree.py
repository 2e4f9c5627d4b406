"""Lets all ranks decide alike: a condition is true where it is on any rank."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import any_rank, differs_around, means, plain_if
from ddpdoctor.fix.names import DIST, argument, calls, dotted, qualified, use
from ddpdoctor.fix.patches.reduced_metric import metrics
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import assignments, free

cures = ("DD225", "DD308")
after = ("out_of_rank_guard",)
_LEAVES = (cst.Break, cst.Continue, cst.Return)


def apply(case: Case) -> str:
    """Reduce the condition at the line, or the one before it by which ranks leave.

    Where only some ranks come to it, as in an else of ``if loss < best``, the number that decides that is reduced.
    """
    source = case.source
    if loops := [node for node in source.on_line(case.line, cst.While) if source.line(node) == case.line]:
        return _reduce_count(source, loops[0])
    condition = _condition(source, case)
    loop = source.enclosing(condition, cst.For, cst.While, cst.FunctionDef)
    if reduced := [
        call for call in calls(source, "reduce", within=loop) if _is_to_one(source, call, condition)
    ]:
        for call in reduced:
            source.replace(call.func, use(source, f"{DIST}.all_reduce"))
            source.remove_argument(call, argument(call, "dst", 1))
        return "the sum on every rank, by all_reduce"
    outer = differs_around(source, condition)
    if outer is not None:
        numbers = metrics(source, outer.test)[:1]
        if not numbers:
            raise CannotPatch(f"the ranks differ at line {source.line(outer)} already")
        source.insert_before(outer, means(source, outer, numbers))
        return f"the mean of {numbers[0]} over ranks"
    plain_if(source, condition)
    name = free(source, condition, "decision")
    source.insert_before(condition, any_rank(source, condition, source.code(condition.test), name))
    source.replace(condition.test, f"{name}.item()")
    return "the same decision on every rank"


def _reduce_count(source: Source, loop: Node) -> str:
    """Count alike on all ranks what a ``while`` ends by, at the end of its body."""
    if source.all(cst.Continue, within=loop) or not isinstance(loop.body, cst.IndentedBlock):
        raise CannotPatch(f"not every round of the loop at line {source.line(loop)} comes to its end")
    names = {source.code(name) for name in source.all(cst.Name, cst.Attribute, within=loop.test)}
    counted = [
        source.code(node.target)
        for node in source.all(cst.AugAssign, within=loop.body)
        if source.code(node.target) in names and not isinstance(node.value, cst.Integer)
    ]
    if not counted:
        raise CannotPatch(f"the loop at line {source.line(loop)} counts nothing that it ends by")
    last = loop.body.body[-1]
    source.insert_after(last, means(source, last, dict.fromkeys(counted)))
    return f"the mean of {', '.join(dict.fromkeys(counted))} over ranks"


def _condition(source: Source, case: Case) -> Node:
    at_line = [node for node in source.on_line(case.line, cst.If) if source.line(node) == case.line]
    if at_line and _leaves(source, at_line[0]):
        return at_line[0]
    around = source.enclosing(case.statement, cst.If, cst.For, cst.While, cst.FunctionDef)
    if (
        isinstance(around, cst.If)
        and isinstance(case.statement, cst.SimpleStatementLine)
        and _leaves(source, around)
    ):
        return around
    block = source.block(case.statement)
    before = [
        node
        for node in block
        if isinstance(node, cst.If) and source.line(node) < case.line and _leaves(source, node)
    ]
    if not before:
        raise CannotPatch("no condition by which a rank leaves is beside it")
    return before[-1]


def _is_to_one(source: Source, call: Node, condition: Node) -> bool:
    """Whether it gives a sum to one rank only, by which the condition or one around it decides."""
    tensor = dotted(call.args[0].value) if call.args else None
    is_reduce = qualified(source, call.func) == f"{DIST}.reduce" and argument(call, "dst", 1) is not None
    if tensor is None or not is_reduce or source.line(call) > source.line(condition):
        return False
    tests = [node.test for node in (condition, *source.above(condition)) if isinstance(node, cst.If)]
    names = {name.value for test in tests for name in source.all(cst.Name, within=test)}
    values = [value for target, value in assignments(source, condition) if dotted(target) in names]
    used = {name.value for value in values for name in source.all(cst.Name, within=value)}
    return tensor.partition(".")[0] in names | used


def _leaves(source: Source, condition: Node) -> bool:
    return bool(source.all(*_LEAVES, within=condition))
