"""Lets all ranks decide alike: a condition is true where it is on any rank."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import DIST, use
from ddpdoctor.fix.patches.reduced_metric import metrics
from ddpdoctor.fix.reading import argument, assigned, calls, differs_around, dotted, free, names_in
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.writing import any_rank, means_of, plain_if
from ddpdoctor.program.files import FUNCTIONS, LOOPS

cures = ("DD225", "DD308")
after = ("out_of_rank_guard",)


def apply(case: Case) -> str:
    """Reduce the condition at the line, or the one before it by which ranks leave.

    Where only some ranks come to it, as in an else of ``if loss < best``, the number that decides that is reduced.
    """
    source = case.source
    if loops := [node for node in source.on_line(case.line, ast.While) if node.lineno == case.line]:
        return _reduce_count(source, loops[0])
    condition = _condition(source, case)
    loop = source.enclosing(condition, *LOOPS, *FUNCTIONS)
    reduces = calls(source, f"{DIST}.reduce", within=loop or source.tree)
    if reduced := [call for call in reduces if _is_to_one(source, call, condition)]:
        for call in reduced:
            source.replace(call.func, use(source, f"{DIST}.all_reduce"))
            source.remove_arguments(call, [argument(call, 1, "dst")])
        return "the sum on every rank, by all_reduce"
    outer = differs_around(source, condition)
    if outer is not None:
        numbers = metrics(source, outer.test)[:1]
        if not numbers:
            raise CannotPatch(f"the ranks differ at line {outer.lineno} already")
        source.insert_before(outer, means_of(source, outer, numbers))
        return f"the mean of {numbers[0]} over ranks"
    plain_if(source, condition)
    name = free(source, condition, "decision")
    source.insert_before(condition, any_rank(source, condition, source.code(condition.test), name))
    source.replace(condition.test, f"{name}.item()")
    return "the same decision on every rank"


def _reduce_count(source: Source, loop: Node) -> str:
    """Count alike on all ranks what a ``while`` ends by, at the end of its body."""
    if source.all(ast.Continue, within=loop) or not source.begins_line(loop.body[0]):
        raise CannotPatch(f"not every round of the loop at line {loop.lineno} comes to its end")
    names = {dotted(name) for name in names_in(source, loop.test)}
    counted = [
        source.code(node.target)
        for node in source.all(ast.AugAssign, within=loop.body)
        if dotted(node.target) in names and not isinstance(node.value, ast.Constant)
    ]
    if not counted:
        raise CannotPatch(f"the loop at line {loop.lineno} counts nothing that it ends by")
    source.insert_after(loop.body[-1], means_of(source, loop.body[-1], dict.fromkeys(counted)))
    return f"the mean of {', '.join(dict.fromkeys(counted))} over ranks"


def _condition(source: Source, case: Case) -> Node:
    at_line = [node for node in source.on_line(case.line, ast.If) if node.lineno == case.line]
    around = source.file.parents.get(case.statement)
    nearest = at_line or (
        [around] if isinstance(around, ast.If) and not hasattr(case.statement, "body") else []
    )
    before = [node for node in source.before(case.statement) if isinstance(node, ast.If)]
    for node in (*nearest, *reversed(before)):
        if source.all(ast.Break, ast.Continue, ast.Return, within=node):
            return node
    raise CannotPatch("no condition by which a rank leaves is beside it")


def _is_to_one(source: Source, call: Node, condition: Node) -> bool:
    """Whether it gives a sum to one rank only, by which the condition or one around it decides."""
    tensor = dotted(call.args[0]) if call.args else None
    if tensor is None or argument(call, 1, "dst") is None or call.lineno > condition.lineno:
        return False
    tests = [node.test for node in (condition, *source.above(condition)) if isinstance(node, ast.If)]
    names = [name for test in tests for name in source.all(ast.Name, within=test)]
    values = [value for name in names if (value := assigned(source, name)) is not None]
    names += [name for value in values for name in source.all(ast.Name, within=value)]
    return tensor.partition(".")[0] in {name.id for name in names}
