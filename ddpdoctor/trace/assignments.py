"""What a loop assigns, and on what that depends, by source."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from ddpdoctor.trace.syntax import FUNCTIONS, assigned_to, called_name, modules_of, parsed

_OF_CALLEE = "{} of the callee"


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
            for name in chain.from_iterable(map(_targets, assigned_to(node))):
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
    """What functions of the script assign where a loop calls them with its objects: ``trainer.stop``."""
    trees = [tree for module in modules_of(file) if (tree := parsed(module))]
    functions = [node for tree in trees for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]
    for call in (node for node in ast.walk(loop) if isinstance(node, ast.Call)):
        for function in (function for function in functions if function.name == called_name(call)):
            parameters = [parameter.arg for parameter in function.args.args if parameter.arg != "self"]
            given = zip(parameters, call.args, strict=False)
            names = {parameter: node.id for parameter, node in given if isinstance(node, ast.Name)}
            if not names.keys().isdisjoint(_changes(function)):
                yield from _by_the_caller_s_names(function, names, call.lineno)


@cache
def _changes(function: ast.AST) -> frozenset[str]:
    """The variables of a function whose attributes it sets."""
    parts = (part for part in ast.walk(function) if isinstance(part, ast.Attribute))
    return frozenset(getattr(part.value, "id", "") for part in parts if isinstance(part.ctx, ast.Store))


def _by_the_caller_s_names(function: ast.AST, given: Mapping[str, str], line: int) -> Iterator[Assignment]:
    """The assignments of a function, which change its own variables and the attributes of what it was given."""
    renamed = _Renamed(given).visit(deepcopy(function))
    for change in _in_body(renamed.body, ()):
        if change.name not in {*given.values(), _OF_CALLEE.format("self")}:
            yield replace(change, line=line)


class _Renamed(ast.NodeTransformer):
    """Gives parameters the names of what the caller gave, and all other variables names that it does not have."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self.given = given

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self.given.get(node.id, _OF_CALLEE.format(node.id)), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.Call:
        name = node.func
        self.generic_visit(node)
        node.func = name if isinstance(name, ast.Name) else node.func
        return node


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
