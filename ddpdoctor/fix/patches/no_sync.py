"""Accumulates gradients without averaging them before the last micro-batch."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import has_group, may_lack_group
from ddpdoctor.fix.wrappers import calls_of_wrappers

cures = ("DD602",)


def apply(case: Case) -> str:
    """``no_sync`` around the forward and the backward of all micro-batches but the last."""
    source, backward = case.source, case.statement
    block = source.block(backward)
    forwards = [other for other in block[: block.index(backward) + 1] if calls_of_wrappers(source, other)]
    loop = source.enclosing(backward, cst.For)
    if not forwards or loop is None:
        raise CannotPatch("the forward is not beside the backward")
    name = source.code(calls_of_wrappers(source, forwards[-1])[0].func)
    last = _last(source, loop, block[block.index(backward) + 1 :])
    first = block.index(forwards[-1])
    wrapped = block[first : block.index(backward) + 1]
    nothing = use(source, "contextlib.nullcontext")
    alone = f"not {has_group(source)} or " if may_lack_group(source) else ""
    source.indent_lines(wrapped[0], f"with {nothing}() if {alone}{last} else {name}.no_sync():")
    for statement in wrapped[1:]:
        source.indent_only(statement)
    return f"{name}.no_sync() for all micro-batches but the last"


def _last(source: Source, loop: Node, behind: list[Node]) -> str:
    """Whether a micro-batch is the last of its window."""
    for statement in behind:
        if isinstance(statement, cst.If) and ".step(" in source.code(statement):
            return str(source.code(statement.test))
    count = loop.iter.args[0].value if isinstance(loop.iter, cst.Call) and len(loop.iter.args) == 1 else None
    is_range = count is not None and source.code(loop.iter.func) == "range"
    if not is_range or not isinstance(loop.target, cst.Name):
        raise CannotPatch("the end of a window of micro-batches is not a condition")
    name = loop.target.value
    if name == "_":
        name = "micro_batch"
        source.replace(loop.target, name)
    return f"{name} + 1 == {source.code(count)}"
