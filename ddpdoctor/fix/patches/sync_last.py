"""Averages gradients at the last micro-batch of a window, and at no other."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import use
from ddpdoctor.fix.patches.no_sync import counted
from ddpdoctor.fix.reading import calls, calls_of_wrappers
from ddpdoctor.fix.source import Node, Source

cures = ("DD202",)
tells = True
_FLAG = "require_backward_grad_sync"


def apply(case: Case) -> str:
    """Mend the condition of ``no_sync``, what it is around, or when its flag is set."""
    source, statement = case.shown
    block = source.block(statement)
    flags = [it for it in (*source.before(statement), statement) if _sets_flag(it)]
    if flags:
        forwards = [it for it in block[: block.index(statement) + 1] if calls_of_wrappers(source, it)]
        if any(it.lineno > flags[-1].lineno for it in forwards):
            source.replace(flags[-1].value, _is_last(source, statement))
            return f"{_FLAG} for the last micro-batch"
        source.move_before(flags[-1], forwards[0] if forwards else block[0])
        return f"{_FLAG} set before the forward"
    for around in (statement, *source.above(statement)):
        if isinstance(around, ast.With) and calls(source, "no_sync", within=around.items[0].context_expr):
            _mend(source, around)
            return "no_sync for all micro-batches but the last"
    raise CannotPatch("the backward is under no no_sync in this function")


def _is_last(source: Source, backward: Node) -> str:
    """Whether a micro-batch is the last of its window: what the update is under, or the last round of the loop."""
    steps = [
        it for it in source.block(backward) if isinstance(it, ast.If) and calls(source, "step", within=it)
    ]
    if steps:
        return source.code(steps[0].test)
    loop = source.enclosing(backward, ast.For)
    name, count = counted(source, loop) if loop is not None else ("", "")
    if name in ("", "_"):
        raise CannotPatch("the loop over micro-batches does not count them")
    return f"{name} + 1 == {count}"


def _sets_flag(statement: Node) -> bool:
    return isinstance(statement, ast.Assign) and getattr(statement.targets[0], "attr", None) == _FLAG


def _mend(source: Source, around: Node) -> None:
    item = around.items[0].context_expr
    conditions = [other for other in source.block(around) if isinstance(other, ast.If)]
    step = [other for other in conditions if calls(source, "step", within=other)]
    if isinstance(item, ast.IfExp) and step:
        test = source.code(step[0].test)
        body_syncs = not calls(source, "no_sync", within=item.body)
        source.replace(item.test, test if body_syncs else f"not ({test})")
    elif isinstance(item, ast.IfExp) and isinstance(item.test, ast.Name):  # the other way round
        source.replace(item.test, f"not {source.code(item.test)}")
    else:
        _swap(source, around, item)


def _swap(source: Source, around: Node, item: Node) -> None:
    """The loop outside of no_sync, which then is not for the last round."""
    loop = around.body[0]
    if len(around.body) > 1 or not isinstance(loop, ast.For):
        raise CannotPatch("no_sync is around more than a loop over micro-batches")
    name, count = counted(source, loop)
    if not name:
        raise CannotPatch("the loop over micro-batches does not count them")
    name = name if name != "_" else "micro_batch"
    nothing = use(source, "contextlib.nullcontext")
    head = f"with {nothing}() if {name} + 1 == {count} else {source.code(item)}:"
    begin, end = source.span(around)[0], source.text.index(":", source.span(loop.iter)[1])
    lines = f"for {name} in {source.code(loop.iter)}:\n{source.margin(loop)}{head}"
    source.replace_span(begin, end + 1, lines)
