"""The line that makes a dataset another one in each process: random numbers, a set's order, what a folder lists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.trace.syntax import (
    FUNCTIONS,
    Scope,
    called_name,
    enclosing_function,
    modules_of,
    own_nodes,
    parsed,
)

_DRAWS = re.compile(
    r"(?:random|np\.random|numpy\.random)\.(?!seed|Random|default_rng|RandomState|get|set)[a-z_]+"
    r"|torch\.(?:rand|randn|randint|randperm|normal|bernoulli|multinomial)|(?:random_split|train_test_split|shuffle)"
)
_LISTS = re.compile(r"(?:os\.(?:listdir|scandir|walk)|i?glob|.*\.(?:glob|iglob|rglob|iterdir))")
_SEEDED = ("generator", "random_state")
"""Arguments by which a draw is the same in every process."""
_DEPTH = 6
"""Assignments, calls and constructions between a DataLoader and what its dataset is made of."""


@dataclass(frozen=True)
class _Place:
    """A scope of the script, in its file."""

    file: str
    tree: ast.Module
    scope: Scope


def dataset_draw(loader: Where | None, script: str) -> Where | None:
    """The line that draws, or lists in no order, what the dataset of a DataLoader holds; None where none is seen.

    Args:
        loader: the line that constructs it.
    """
    tree = parsed(loader.file) if loader is not None else None
    if loader is None or loader.line is None or tree is None:
        return None
    place = _Place(loader.file, tree, enclosing_function(tree, loader.line))
    calls = (node for node in own_nodes(place.scope) if isinstance(node, ast.Call))
    made = next((c for c in calls if c.lineno == loader.line and called_name(c).endswith("DataLoader")), None)
    dataset = _argument(made, 0, "dataset") if made else None
    if dataset is None:
        return None
    others = [tree for tree in map(_whole, modules_of(script)) if tree.file != loader.file]
    draws = list(_draws(dataset, place, [_Place(place.file, tree, tree), *others], _DEPTH))
    _, where = min(draws, key=lambda pair: pair[0], default=(0, None))
    return where


def _whole(file: str) -> _Place:
    tree = parsed(file) or ast.Module([], [])
    return _Place(file, tree, tree)


def _draws(
    value: ast.AST, place: _Place, files: list[_Place], depth: int, part: int | None = None
) -> Iterator[tuple[int, Where]]:
    """The draws in an expression and in what it is made of; the likeliest kind has the least number.

    Args:
        part: which of the values that the expression returns is meant; None for all of them.
    """
    yield from _inside([value], place)
    if not depth:
        return
    names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
    for node in own_nodes(place.scope):
        if isinstance(node, ast.Assign) and names & {n.id for t in node.targets for n in _names(t)}:
            yield from _draws(node.value, place, files, depth - 1, _part(node, names))
        elif isinstance(node, ast.Expr) and names & {n.id for n in _names(node.value)}:
            yield from _inside([node.value], place)
    if isinstance(place.scope, FUNCTIONS):
        yield from _of_callers(names, place, files, depth - 1)
    called = {called_name(node) for node in ast.walk(value) if isinstance(node, ast.Call)}
    for file in files:
        for body in _bodies(file.tree, called) if part is None else ():
            yield from _inside(body, file)
        yield from _of_returns(called, file, files, depth - 1, part)


def _part(assignment: ast.Assign, names: set[str]) -> int | None:
    """The position at which one of these names takes its value from a tuple."""
    targets = (target.elts for target in assignment.targets if isinstance(target, ast.Tuple))
    parts = (
        n for elts in targets for n, part in enumerate(elts) if names & {name.id for name in _names(part)}
    )
    return next(parts, None)


def _of_returns(
    called: set[str], file: _Place, files: list[_Place], depth: int, part: int | None
) -> Iterator[tuple[int, Where]]:
    """The draws in what functions return that have these names."""
    for function in (
        node for node in ast.walk(file.tree) if isinstance(node, FUNCTIONS) and node.name in called
    ):
        for node in own_nodes(function):
            value = node.value if isinstance(node, ast.Return) else None
            if isinstance(value, ast.Tuple) and part is not None and part < len(value.elts):
                value = value.elts[part]
            if value is not None:
                yield from _draws(value, _Place(file.file, file.tree, function), files, depth)


def _of_callers(
    names: set[str], place: _Place, files: list[_Place], depth: int
) -> Iterator[tuple[int, Where]]:
    """The draws in what callers give to the function in which the names are its parameters."""
    assert isinstance(place.scope, FUNCTIONS)
    parameters = [argument.arg for argument in place.scope.args.args if argument.arg not in ("self", "cls")]
    for file in files:
        for call in (node for node in ast.walk(file.tree) if isinstance(node, ast.Call)):
            if called_name(call) != place.scope.name:
                continue
            caller = _Place(file.file, file.tree, enclosing_function(file.tree, call.lineno))
            for position, name in enumerate(parameters):
                given = _argument(call, position, name) if name in names else None
                if given is not None:
                    yield from _draws(given, caller, files, depth)


def _bodies(tree: ast.Module, names: set[str]) -> Iterator[list[ast.stmt]]:
    """Of functions and of constructors of classes that have these names."""
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and node.name in names:
            yield node.body
        elif isinstance(node, ast.ClassDef) and node.name in names:
            yield from (it.body for it in node.body if isinstance(it, FUNCTIONS) and it.name == "__init__")


def _inside(nodes: Iterable[ast.AST], place: _Place) -> Iterator[tuple[int, Where]]:
    for node in nodes:
        if isinstance(node, ast.expr) and (kind := _kind(node)):
            function = getattr(enclosing_function(place.tree, node.lineno), "name", "<module>")
            yield kind, Where(place.file, node.lineno, function)
        if not _hides_order(node):
            yield from _inside(ast.iter_child_nodes(node), place)


def _kind(node: ast.AST) -> int:
    """1 for random numbers, 2 for a set, 3 for a folder's files, 0 for none of them."""
    if isinstance(node, ast.Set | ast.SetComp):
        return 2
    if not isinstance(node, ast.Call) or any(keyword.arg in _SEEDED for keyword in node.keywords):
        return 0
    name = ast.unparse(node.func)
    return 1 if _DRAWS.fullmatch(name) else 2 if name == "set" else 3 if _LISTS.fullmatch(name) else 0


def _hides_order(node: ast.AST) -> bool:
    """Whether the order of what is in there does not matter: it is sorted, counted, or asked for a member."""
    if isinstance(node, ast.Compare):
        return any(isinstance(operator, ast.In | ast.NotIn) for operator in node.ops)
    return isinstance(node, ast.Call) and called_name(node) in ("sorted", "len")


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return named or (call.args[position] if position < len(call.args) else None)


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Name))
