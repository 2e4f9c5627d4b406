"""Accumulates gradients without averaging them before the last micro-batch."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.reading import calls, calls_of_wrappers, has_group, may_lack_group, means
from ddpdoctor.fix.source import Node, Source

cures = ("DD602",)
tells = True


def apply(case: Case) -> str:
    """``no_sync`` around the forward and the backward of all micro-batches but the last."""
    source, backward = case.source, case.statement
    until = [*source.before(backward), backward]
    forwards = [other for other in until if calls_of_wrappers(source, other)]
    loop = source.enclosing(backward, ast.For)
    if not forwards or loop is None:
        raise CannotPatch("the forward is not beside the backward")
    name = source.code(calls_of_wrappers(source, forwards[-1])[0].func)
    last = _last(source, loop, source.behind(backward))
    nothing = use(source, "contextlib.nullcontext")
    alone = f"not {has_group(source)} or " if may_lack_group(source) else ""
    header = f"with {nothing}() if {alone}{last} else {name}.no_sync():"
    source.indent_lines(until[until.index(forwards[-1]) :], header)
    return f"{name}.no_sync() for all micro-batches but the last"


def _last(source: Source, loop: Node, behind: list[Node]) -> str:
    """Whether a micro-batch is the last of its window."""
    for statement in behind:
        if isinstance(statement, ast.If) and calls(source, "step", within=statement):
            return source.code(statement.test)
    name, count = counted(source, loop)
    if not name:
        raise CannotPatch("the end of a window of micro-batches is not a condition")
    if name == "_":
        name = "micro_batch"
        source.replace(loop.target, name)
    return f"{name} + 1 == {count}"


def counted(source: Source, loop: Node) -> tuple[str, str]:
    """The variable and the count of ``for i in range(n)``; empty of any other loop."""
    over = loop.iter
    is_range = (
        isinstance(over, ast.Call) and means(source, over.func, "builtins.range") and len(over.args) == 1
    )
    is_named = isinstance(loop.target, ast.Name)
    return (loop.target.id, source.code(over.args[0])) if is_range and is_named else ("", "")
