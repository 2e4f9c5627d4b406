"""What a loop assigns, and on what that depends, by source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from ddpdoctor.trace.syntax import FUNCTIONS, called_name, modules_of, parsed


@dataclass(frozen=True)
class Assignment:
    """A variable, or an object that a call may change, and what it depends on."""

    name: str
    line: int
    value: ast.expr | None
    """None where a loop takes it from what it goes over."""
    conditions: tuple[ast.expr, ...]


def assignments(loop: ast.For | ast.While) -> Iterator[Assignment]:
    """What a loop assigns in each turn, in its body and by what it goes over."""
    yield from _in_body([*loop.body], ())
    if isinstance(loop, ast.For):
        for name in _targets(loop.target):
            yield Assignment(name, loop.lineno, None, ())


def _in_body(body: Iterable[ast.stmt], conditions: tuple[ast.expr, ...]) -> Iterator[Assignment]:
    for node in body:
        if isinstance(node, ast.If):
            yield from _in_body((*node.body, *node.orelse), (*conditions, node.test))
        elif isinstance(node, ast.For):
            for name in _targets(node.target):
                yield Assignment(name, node.lineno, None, conditions)
            yield from _in_body((*node.body, *node.orelse), conditions)
        elif isinstance(node, ast.While):
            yield from _in_body((*node.body, *node.orelse), conditions)
        elif isinstance(node, ast.With):
            yield from _in_body(node.body, conditions)
        elif isinstance(node, ast.Try):
            handled = chain.from_iterable(handler.body for handler in node.handlers)
            yield from _in_body((*node.body, *handled, *node.orelse, *node.finalbody), conditions)
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for name in chain.from_iterable(map(_targets, targets)):
                yield Assignment(name, node.lineno, node.value, conditions)
        yield from _changed_by_calls(node, conditions)


def _changed_by_calls(node: ast.stmt, conditions: tuple[ast.expr, ...]) -> Iterator[Assignment]:
    """Objects that are called with a number, as ``stopper(loss)`` or ``stopper.step(loss)``, or compare with it."""
    if isinstance(node, ast.Expr | ast.Assign | ast.Return):
        for call in (part for part in ast.walk(node) if isinstance(part, ast.Call)):
            owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
            given = [argument for argument in call.args if dotted(argument)]
            if (name := dotted(owner)) and given:
                yield Assignment(name, node.lineno, ast.Tuple(given, ast.Load()), conditions)


def set_by_callees(loop: ast.For | ast.While, file: str) -> Iterator[Assignment]:
    """Attributes of an object that functions of the script set where a loop calls them with it: ``trainer.stop``."""
    trees = [tree for module in modules_of(file) if (tree := parsed(module))]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    for call in (node for node in ast.walk(loop) if isinstance(node, ast.Call)):
        for function in (function for function in functions if function.name == called_name(call)):
            parameters = [parameter.arg for parameter in function.args.args]
            given = zip([name for name in parameters if name != "self"], call.args, strict=False)
            for parameter, argument in given:
                if isinstance(argument, ast.Name):
                    yield from _attributes_set(function, parameter, argument.id, call.lineno)


def _attributes_set(function: ast.AST, parameter: str, argument: str, line: int) -> Iterator[Assignment]:
    parts = [
        part
        for part in ast.walk(function)
        if isinstance(part, ast.Attribute) and (dotted(part) or "").startswith(f"{parameter}.")
    ]
    owner = ast.Name(argument, ast.Load())
    read: list[ast.expr] = [
        ast.Attribute(owner, part.attr, part.ctx) for part in parts if isinstance(part.ctx, ast.Load)
    ]
    for part in parts:
        if isinstance(part.ctx, ast.Store):
            yield Assignment(f"{argument}.{part.attr}", line, ast.Tuple(read, ast.Load()), ())


def _targets(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple | ast.List):
        for part in target.elts:
            yield from _targets(part)
    elif name := dotted(target):
        yield name


def dotted(node: ast.expr) -> str | None:
    """``a`` or ``a.b``."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return None
