"""Means over unequal counts."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import DIST
from ddpdoctor.fix.patches import patch
from ddpdoctor.fix.reading import argument, is_method
from ddpdoctor.fix.source import Node
from ddpdoctor.fix.writing import Source

_TARGET = 1
"""The position of the targets in the losses of torch."""


@patch("DD209", changes=("loss",))
def global_mean(case: Case) -> str:
    """Multiply the loss by this rank's count of elements, and divide it by the mean count."""
    source, statement = case.source, case.statement
    loss: Node = statement.value if isinstance(statement, (ast.Assign, ast.Return)) else None
    if quotient := _quotient(source, statement):
        return _divide_by_mean(source, *quotient)
    target = argument(loss, _TARGET, "target") if isinstance(loss, ast.Call) else None
    if loss is None or target is None or target not in loss.args:
        raise CannotPatch("the line does not compute the loss from outputs and targets")
    count = _count(source, _options(source, loss), target)
    name = source.code(statement.targets[0]) if isinstance(statement, ast.Assign) else "loss"
    tokens, total = source.free(statement, "count"), source.free(statement, "total")
    lines = source.with_group(
        f"{tokens} = {count}\n"
        f"{total} = {tokens}.clone()\n"
        f"{source.use(f'{DIST}.all_reduce')}({total})\n"
        f"{name} = {name} * {tokens} * {source.world_size(statement, plain=True)} / {total}",
    )
    if isinstance(statement, ast.Return):
        source.insert_before(statement, f"{name} = {source.code(loss)}\n{lines}")
        source.replace(loss, name)
    else:
        source.insert_after(statement, lines)
    return "the mean over the elements of all ranks"


def _quotient(source: Source, statement: Node) -> tuple[Node, Node] | None:
    """The ``losses.sum() / mask.sum()`` that a statement assigns, returns or takes the gradients of, also as what a
    function returns; with the sum below."""
    value: Node = getattr(statement, "value", None)
    if is_method(value, "backward"):
        value = value.func.value
    quotient = source.value_of(value) if value is not None else None
    if not isinstance(quotient, ast.BinOp) or not isinstance(quotient.op, ast.Div):
        return None
    sums = [
        next(
            (call for call in source.all(ast.Call, within=side) if is_method(call, "sum") and not call.args),
            None,
        )
        for side in (quotient.left, quotient.right)
    ]
    return (quotient, sums[1]) if all(sums) else None


def _divide_by_mean(source: Source, quotient: Node, elements: Node) -> str:
    """Divide a sum by the mean count of the ranks."""
    statement = source.statement(quotient)
    count = source.free(statement, "count")
    together = source.with_group(f"{source.use(f'{DIST}.all_reduce')}({count})")
    source.insert_before(statement, f"{count} = {source.code(elements)}\n{together}")
    source.replace(elements, f"({count} / {source.world_size(statement)})")
    return "the mean over the elements of all ranks"


def _options(source: Source, loss: Node) -> Node:
    """The call that has the options of a loss: its own, or the one that made the module that it calls."""
    if any(name.startswith("torch.nn.functional.") for name in source.expression(loss.func).names):
        return loss
    made = source.value_of(loss.func)
    names = source.expression(made.func).names if isinstance(made, ast.Call) else ()
    if not any(name.startswith("torch.nn.") for name in names):
        raise CannotPatch(f"it is not known what {source.code(loss.func)} averages over")
    return made


def _count(source: Source, options: Node, target: Node) -> str:
    """The elements over which this rank averages."""
    weight, ignored = argument(options, None, "weight"), argument(options, None, "ignore_index")
    if weight is not None and source.code(weight) != "None":
        raise CannotPatch("the mean is weighted by classes, and not over elements")
    code = source.code(target)
    if ignored is not None:
        return f"({code} != {source.code(ignored)}).sum()"
    device = f", device={code}.device" if "cuda" in source.text else ""
    return f"{source.use('torch.tensor')}(len({code}){device})"


@patch("DD210", changes=("loss",))
def window_length(case: Case) -> str:
    """``min(window, len(loader) - start)`` in place of the window, and an update where the epoch ends."""
    source, loop = case.source, case.loop
    given = loop.iter
    is_counted = source.is_call_of(given, "builtins.enumerate")
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
    length, size, lines = source.free(loop, "length"), window, ""
    if not window.isidentifier():
        size = source.free(loop, "window")
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
