"""Ends the last window of micro-batches with the epoch, and divides by its true length."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import argument, dotted
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import free

cures = ("DD210",)


def apply(case: Case) -> str:
    """``min(window, len(loader) - start)`` in place of the window."""
    source = case.source
    loop = case.loop
    given = loop.iter
    if (
        not isinstance(given, cst.Call)
        or dotted(given.func) != "enumerate"
        or not isinstance(loop.target, cst.Tuple)
    ):
        raise CannotPatch("the loop does not number its micro-batches by enumerate")
    number, batches = source.code(loop.target.elements[0].value), source.code(given.args[0].value)
    start = argument(given, "start", 1)
    first = source.code(start.value) if start else "0"
    ends = [node for node in source.all(cst.Comparison, within=loop) if _modulo(source, node)]
    if not ends:
        raise CannotPatch("the end of a window is not a condition by its number")
    window = _modulo(source, ends[0])
    position = number if first == "0" else f"({number} - {first})"
    divided = [
        node.right
        for node in source.all(cst.BinaryOperation, within=loop)
        if isinstance(node.operator, cst.Divide) and source.code(node.right) == window
    ]
    if not divided:
        raise CannotPatch("the loss is not divided by the window")
    length, size = free(source, loop, "length"), window
    lines = ""
    if not window.isidentifier():
        size = free(source, loop, "window")
        lines = f"{size} = {window}\n"
    source.insert_first(
        loop, f"{lines}{length} = min({size}, len({batches}) - {position} // {size} * {size})"
    )
    for node in divided:
        source.replace(node, length)
    for end in ends:
        statement = source.statement(end)
        if f"len({batches})" not in source.code(statement).partition("\n")[0]:
            done = f"{number} + 1" if first == "0" else number
            source.replace(end, f"{source.code(end)} or {done} == len({batches})")
    return "windows divided by their true length"


def _modulo(source: Source, node: Node) -> str:
    """``n`` of ``x % n == 0``; empty for anything else."""
    left = node.left
    is_modulo = isinstance(left, cst.BinaryOperation) and isinstance(left.operator, cst.Modulo)
    return str(source.code(left.right)) if is_modulo else ""
