"""Windows of micro-batches after whose last backward the optimizer steps though that backward ran under no_sync()."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from ddpdoctor.model import Evidence
from ddpdoctor.program import Condition, Expression
from ddpdoctor.program.files import File, dotted, lines, name_called
from ddpdoctor.unreached.lines import DDP, Sight, UnreachedLines

_SIZE = 4
"""Micro-batches of the window that is tried."""
_NUMBERS = range(2 * _SIZE)


def steps_without_sync(unreached: UnreachedLines) -> Iterator[Sight]:
    """The loops in which the last backward of a window is left out of the averaging."""
    program = unreached.program
    for file in program.files.values():
        for call in file.calls:
            if name_called(call) == "no_sync" and unreached.ways(Expression(program, file, call)):
                for loop in program.loops.around(file, call.lineno)[-1:]:
                    no_sync = Expression(program, file, call)
                    yield from _of_loop(unreached, file, loop, no_sync, _uses(no_sync, loop))
    flags = [it for it in program.assigned() if it[0].is_attribute("require_backward_grad_sync")]
    for flag, value in flags:
        for loop in program.loops.around(flag.file, flag.node.lineno)[-1:]:
            alone = sum(it.file is flag.file and it.where.line in lines(loop) for it, _ in flags) == 1
            if alone and unreached.is_unreached(flag.where) and not isinstance(value.node, ast.Constant):
                off = Condition(value, False, flag.where)
                yield from _of_loop(unreached, flag.file, loop, flag, [*_within(unreached, loop, flag), off])


def _of_loop(
    unreached: UnreachedLines,
    file: File,
    loop: ast.AST,
    no_sync: Expression,
    uses: list[Condition] | None,
) -> Iterator[Sight]:
    """Args: uses: what has to be so, in the loop, for a backward not to reduce."""
    index = _index(loop)
    home = file.scopes[loop]
    steps = [it for it in unreached.optimizer_steps if it.file.scopes[it.node] is home]
    if not index or len(steps) != 1 or uses is None or _averages(unreached, file, loop):
        return
    step = steps[0]
    behind = (step.where.line or 0) > lines(loop)[-1]
    if not behind and step.where.line not in lines(loop):
        return
    for number in [_SIZE - 1] if behind else _NUMBERS:
        values = _values(unreached, file, loop, index, number)
        stepping = behind or _truth(_within(unreached, loop, step), values)
        if stepping and _truth(uses, values):
            words = {"number": str(number % _SIZE + 1), "size": str(_SIZE)}
            yield Sight(no_sync.where, words, (Evidence("steps after it", where=step.where),))
            return


def _averages(unreached: UnreachedLines, file: File, loop: ast.AST) -> bool:
    """Whether a loop, or its function, has a collective that may average by hand."""
    called = unreached.program.loops.called_in(file, loop)
    scopes = {it.file.scopes[it.node] for it in unreached.collectives if DDP not in it.called}
    return file.scopes[loop] in scopes or not called.isdisjoint(scopes)


def _index(loop: ast.AST) -> str:
    """The variable that counts the turns of a loop from 0."""
    if not isinstance(loop, ast.For) or not isinstance(loop.iter, ast.Call) or len(loop.iter.args) != 1:
        return ""
    name, target = name_called(loop.iter), loop.target
    if name == "enumerate" and isinstance(target, ast.Tuple):
        target = target.elts[0]
    elif name != "range":
        return ""
    return target.id if isinstance(target, ast.Name) else ""


def _within(unreached: UnreachedLines, loop: ast.AST, call: Expression) -> list[Condition]:
    return [it for it in unreached.program.conditions(call.where) if it.at.line in lines(loop)]


def _uses(no_sync: Expression, loop: ast.AST) -> list[Condition] | None:
    """What has to be so, in its loop, for a backward to run under it; None where it is not written in a ``with``, or in
    a variable that one has."""
    file, node, found = no_sync.file, no_sync.node, list[Condition]()
    for around in file.above(node):
        if isinstance(around, ast.IfExp):
            if node not in (around.body, around.orelse):
                return None
            found.append(Condition(no_sync.inner(around.test), node is around.body, file.where(around)))
        elif isinstance(around, ast.With | ast.withitem | ast.Assign):
            break
        else:
            return None
        node = around
    conditions = no_sync.program.conditions(no_sync.where)
    return [*(it for it in conditions if it.at.line in lines(loop)), *found]


def _values(
    unreached: UnreachedLines, file: File, loop: ast.AST, index: str, number: int
) -> Mapping[str, object]:
    """What variables of a loop are in one turn: the index, whole numbers that do not change, and what follows."""
    names = {dotted(it) for it in file.scopes if isinstance(it, ast.Name | ast.Attribute)} - {None}
    set_inside: dict[str, list[ast.Assign]] = {}
    for it in ast.walk(loop):
        if isinstance(it, ast.Assign):
            for target in it.targets:
                set_inside.setdefault(dotted(target) or "", []).append(it)
    values: dict[str, object] = {str(it): _SIZE for it in names if it not in set_inside}
    values[index] = number
    for name, assigned in set_inside.items():
        value = (
            Expression(unreached.program, file, assigned[0].value).truth(values)
            if len(assigned) == 1
            else None
        )
        if (
            name
            and value is not None
            and isinstance(assigned[0].value, ast.Compare | ast.BoolOp | ast.UnaryOp)
        ):
            values[name] = value
    return values


def _truth(conditions: list[Condition], values: Mapping[str, object]) -> bool | None:
    """Whether all of these are so; None where that does not follow."""
    found = [(it.test.truth(values), it.holds) for it in conditions]
    return None if any(truth is None for truth, _ in found) else all(truth is holds for truth, holds in found)
