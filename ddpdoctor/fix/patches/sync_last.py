"""Averages gradients at the last micro-batch of a window, and at no other."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import use
from ddpdoctor.fix.source import Node, Source

cures = ("DD202",)
_FLAG = "require_backward_grad_sync"


def apply(case: Case) -> str:
    """Mend the condition of ``no_sync``, what it is around, or when its flag is set."""
    source, statement = case.shown
    flags = [
        other
        for other in source.block(statement)
        if source.line(other) <= source.line(statement) and f".{_FLAG} = " in source.code(other)
    ]
    if flags:
        source.insert_before(source.block(statement)[0], source.reindented(flags[-1], ""))
        source.delete(flags[-1])
        return f"{_FLAG} set before the forward"
    for around in (statement, *source.above(statement)):
        if isinstance(around, cst.With) and "no_sync" in source.code(around.items[0].item):
            return _mend(source, around)
    raise CannotPatch("the backward is under no no_sync in this function")


def _mend(source: Source, around: Node) -> str:
    item = around.items[0].item
    step = [
        other
        for other in source.block(around)
        if isinstance(other, cst.If) and ".step(" in source.code(other)
    ]
    if isinstance(item, cst.IfExp) and step:
        body_syncs = "no_sync" not in source.code(item.body)
        test = source.code(step[0].test)
        source.replace(item.test, test if body_syncs else f"not ({test})")
        return "no_sync for all micro-batches but the last"
    if isinstance(item, cst.IfExp) and isinstance(item.test, cst.Name):  # the other way round
        source.replace(item.test, f"not {source.code(item.test)}")
        return "no_sync for all micro-batches but the last"
    inner = around.body.body
    loop = inner[0] if len(inner) == 1 and isinstance(inner[0], cst.For) else None
    if loop is None or not isinstance(loop.target, cst.Name) or not isinstance(loop.iter, cst.Call):
        raise CannotPatch("no_sync is around more than a loop over micro-batches")
    if source.code(loop.iter.func) != "range" or len(loop.iter.args) != 1:
        raise CannotPatch("the loop over micro-batches does not count them")
    return _swap(source, around, loop)


def _swap(source: Source, around: Node, loop: Node) -> str:
    """The loop outside of no_sync, which then is not for the last round."""
    name = loop.target.value if loop.target.value != "_" else "micro_batch"
    count = source.code(loop.iter.args[0].value)
    item = source.code(around.items[0].item)
    first = loop.body.body[0]
    margin = source.margin(around)
    head = (
        f"{margin}for {name} in {source.code(loop.iter)}:\n"
        f"{source.margin(loop)}with {use(source, 'contextlib.nullcontext')}() if {name} + 1 == {count} else {item}:\n"
    )
    source.replace_lines(source.line(around), source.line(first) - len(first.leading_lines), head)
    return "no_sync for all micro-batches but the last"
