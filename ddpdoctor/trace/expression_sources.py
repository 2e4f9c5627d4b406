"""What an expression is made of, by source: through assignments, calls, and constructors in the files of a script."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

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

DEPTH = 6
"""Assignments, calls and constructions between a DataLoader and what its dataset is made of."""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Definition: TypeAlias = _Function | ast.ClassDef


@dataclass(frozen=True)
class Place:
    """A scope of the script, in its file."""

    file: str
    tree: ast.Module
    scope: Scope


@dataclass(frozen=True)
class Match:
    """A part of an expression, or of what it is made of, that is searched for."""

    kind: int
    """The likeliest has the least number."""
    node: ast.expr
    place: Place
    """Its function, or its module."""

    @property
    def where(self) -> Where:
        """Its line."""
        function = getattr(self.place.scope, "name", "<module>")
        return Where(self.place.file, self.node.lineno, function)


def dataset_argument(loader: Where | None) -> tuple[ast.expr, Place] | None:
    """The dataset that a line gives to a DataLoader; None where the line does not construct one.

    Args:
        loader: the line that constructs it.
    """
    tree = parsed(loader.file) if loader is not None else None
    if loader is None or loader.line is None or tree is None:
        return None
    place = Place(loader.file, tree, enclosing_function(tree, loader.line))
    calls = (node for node in own_nodes(place.scope) if isinstance(node, ast.Call))
    made = next((c for c in calls if c.lineno == loader.line and called_name(c).endswith("DataLoader")), None)
    dataset = _argument(made, 0, "dataset") if made else None
    return None if dataset is None else (dataset, place)


def files_of(script: str, file: str) -> list[Place]:
    """This file, and the others that a script consists of."""
    return [_whole(file), *(_whole(other) for other in modules_of(script) if other != file)]


def _whole(file: str) -> Place:
    tree = parsed(file) or ast.Module([], [])
    return Place(file, tree, tree)


class Search(ABC):
    """For what an expression is made of, through the files of a script."""

    def __init__(self, files: Iterable[Place]) -> None:
        self._defined: defaultdict[str, list[tuple[Place, _Definition]]] = defaultdict(list)
        self._calls: defaultdict[str, list[tuple[Place, ast.Call]]] = defaultdict(list)
        self._depths: dict[tuple[int, int, int | None], int] = {}
        """Of expressions that were looked at, the most that was left to go then."""
        self._tables: dict[str, list[str]] = {}
        """What dictionaries of functions or classes hold, by their name."""
        self._class_of: dict[_Function, str] = {}
        """By constructor."""
        for file in files:
            for node in ast.walk(file.tree):
                if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                    self._defined[node.name].append((file, node))
                    if isinstance(node, ast.ClassDef):
                        self._class_of.update(dict.fromkeys(_constructors(node), node.name))
                elif isinstance(node, ast.Call):
                    self._calls[called_name(node)].append((file, node))
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                    of_dict = [value.id for value in node.value.values if isinstance(value, ast.Name)]
                    self._tables.update({name.id: of_dict for t in node.targets for name in _names(t)})

    def calls(self, *names: str) -> Iterator[ast.Call]:
        """The calls of functions or methods of these names."""
        return (call for name in names for _, call in self._calls[name])

    @abstractmethod
    def kind(self, node: ast.expr, place: Place) -> int:
        """What an expression is of what is searched for; 0 for none of it."""

    @abstractmethod
    def hides(self, node: ast.AST) -> bool:
        """Whether what is in there does not matter."""

    def matches(
        self, value: ast.AST, place: Place, depth: int = DEPTH, part: int | None = None
    ) -> Iterator[Match]:
        """What is searched for, in an expression and in what it is made of.

        Args:
            part: which of the values that the expression returns is meant; None for all of them.
        """
        key = (id(value), id(place.scope), part)
        if self._depths.get(key, -1) >= depth:
            return
        self._depths[key] = depth
        yield from self._inside([value], place)
        if not depth:
            return
        names = {node.id for node in self._visible(value) if isinstance(node, ast.Name)}
        for node in own_nodes(place.scope):
            if isinstance(node, ast.Assign) and names & {n.id for t in node.targets for n in _names(t)}:
                yield from self.matches(node.value, place, depth - 1, _part(node, names))
            elif isinstance(node, ast.Expr) and names & {n.id for n in _names(node.value)}:
                yield from self._inside([node.value], place)
        if isinstance(place.scope, FUNCTIONS):
            yield from self._of_callers(names, place, place.scope, depth - 1)
        calls = (node for node in self._visible(value) if isinstance(node, ast.Call))
        for name in sorted({name for call in calls for name in self._called(call)}):
            yield from self._of_definitions(name, depth - 1, part)

    def _visible(self, node: ast.AST) -> Iterator[ast.AST]:
        """An expression and its parts that matter."""
        yield node
        if not self.hides(node):
            for part in ast.iter_child_nodes(node):
                yield from self._visible(part)

    def _called(self, call: ast.Call) -> list[str]:
        """The names of what may be called: all that a dictionary holds, where it is one of them."""
        function = call.func
        if isinstance(function, ast.Subscript) and isinstance(function.value, ast.Name):
            return self._tables.get(function.value.id, [])
        return [called_name(call)]

    def _of_definitions(self, name: str, depth: int, part: int | None) -> Iterator[Match]:
        """The matches in functions of this name, in what they return, and in constructors of classes."""
        for file, definition in self._defined[name]:
            if part is None:
                yield from self._inside(_body(definition), file)
            if isinstance(definition, FUNCTIONS):
                yield from self._of_returns(definition, file, depth, part)

    def _of_returns(self, function: _Function, file: Place, depth: int, part: int | None) -> Iterator[Match]:
        """The matches in what a function returns."""
        for node in own_nodes(function):
            value = node.value if isinstance(node, ast.Return) else None
            if isinstance(value, ast.Tuple) and part is not None and part < len(value.elts):
                value = value.elts[part]
            if value is not None:
                yield from self.matches(value, Place(file.file, file.tree, function), depth)

    def _of_callers(self, names: set[str], place: Place, function: _Function, depth: int) -> Iterator[Match]:
        """The matches in what callers give to the function in which the names are its parameters."""
        parameters = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
        for file, call in self._calls[self._class_of.get(function, function.name)]:
            caller = Place(file.file, file.tree, enclosing_function(file.tree, call.lineno))
            for position, name in enumerate(parameters):
                given = _argument(call, position, name) if name in names else None
                if given is not None:
                    yield from self.matches(given, caller, depth)

    def _inside(self, nodes: Iterable[ast.AST], place: Place) -> Iterator[Match]:
        for node in nodes:
            if isinstance(node, ast.expr) and (kind := self.kind(node, place)):
                scope = enclosing_function(place.tree, node.lineno)
                yield Match(kind, node, Place(place.file, place.tree, scope))
            if not self.hides(node):
                yield from self._inside(ast.iter_child_nodes(node), place)


def _part(assignment: ast.Assign, names: set[str]) -> int | None:
    """The position at which one of these names takes its value from a tuple."""
    targets = (target.elts for target in assignment.targets if isinstance(target, ast.Tuple))
    parts = (
        n for elts in targets for n, part in enumerate(elts) if names & {name.id for name in _names(part)}
    )
    return next(parts, None)


def _body(definition: _Definition) -> list[ast.stmt]:
    """Of a function, or of the constructor of a class."""
    if isinstance(definition, FUNCTIONS):
        return definition.body
    return [statement for constructor in _constructors(definition) for statement in constructor.body]


def _constructors(definition: ast.ClassDef) -> list[_Function]:
    return [it for it in definition.body if isinstance(it, FUNCTIONS) and it.name == "__init__"]


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    return named or (call.args[position] if position < len(call.args) else None)


def _names(node: ast.AST) -> Iterator[ast.Name]:
    return (part for part in ast.walk(node) if isinstance(part, ast.Name))
