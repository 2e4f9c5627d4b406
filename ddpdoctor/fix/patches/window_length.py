"""Ends the last window of micro-batches with the epoch, and divides by its true length."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import argument, free, means
from ddpdoctor.fix.source import Node, Source

cures = ("DD210",)
changes = ("loss",)


def apply(case: Case) -> str:
    """``min(window, len(loader) - start)`` in place of the window."""
    source, loop = case.source, case.loop
    given = loop.iter
    is_counted = isinstance(given, ast.Call) and means(source, given.func, "builtins.enumerate")
    if not is_counted or not isinstance(loop.target, ast.Tuple):
        raise CannotPatch("the loop does not number its micro-batches by enumerate")
    number, batches = source.code(loop.target.elts[0]), source.code(given.args[0])
    start = argument(given, 1, "start")
    first = source.code(start) if start is not None else "0"
    ends = [node for node in source.all(ast.Compare, within=loop) if _modulo(source, node)]
    if not ends:
        raise CannotPatch("the end of a window is not a condition by its number")
    window = _modulo(source, ends[0])
    quotients = [node for node in source.all(ast.BinOp, within=loop) if isinstance(node.op, ast.Div)]
    divided = [node.right for node in quotients if source.code(node.right) == window]
    if not divided:
        raise CannotPatch("the loss is not divided by the window")
    position = number if first == "0" else f"({number} - {first})"
    length, size, lines = free(source, loop, "length"), window, ""
    if not window.isidentifier():
        size = free(source, loop, "window")
        lines = f"{size} = {window}\n"
    least = f"min({size}, len({batches}) - {position} // {size} * {size})"
    source.insert_first(loop, f"{lines}{length} = {least}")
    for node in divided:
        source.replace(node, length)
    for end in ends:
        around = source.statement(end)
        within = getattr(around, "test", around)
        if f"len({batches})" not in source.code(within):
            done = f"{number} + 1" if first == "0" else number
            source.replace(end, f"{source.code(end)} or {done} == len({batches})")
    return "windows divided by their true length"


def _modulo(source: Source, node: Node) -> str:
    """``n`` of ``x % n == 0``; empty for anything else."""
    is_modulo = isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Mod)
    return source.code(node.left.right) if is_modulo else ""
