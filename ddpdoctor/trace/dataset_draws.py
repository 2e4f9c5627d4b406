"""The line that makes a dataset another one in each process: random numbers, a set's order, what a folder lists."""

from __future__ import annotations

import ast
import re
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

_DRAWS = re.compile(
    r"(?:random|np\.random|numpy\.random)\.(?!seed|Random|default_rng|RandomState|get|set)[a-z_]+"
    r"|torch\.(?:rand|randn|randint|randperm|normal|bernoulli|multinomial)|(?:random_split|train_test_split|shuffle)"
)
_LISTS = re.compile(r"(?:os\.(?:listdir|scandir|walk)|i?glob|.*\.(?:glob|iglob|rglob|iterdir))")
_SEEDED = ("generator", "random_state")
"""Arguments by which a draw is the same in every process."""
_SEEDS = re.compile(r"((?:np\.|numpy\.)?random|torch)\.(?:manual_)?seed\(\d+\)")
"""A generator that draws the same numbers in every process."""
_DEPTH = 6
"""Assignments, calls and constructions between a DataLoader and what its dataset is made of."""

_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Definition: TypeAlias = _Function | ast.ClassDef


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
    others = [file for file in map(_whole, modules_of(script)) if file.file != loader.file]
    search = _Search([_Place(place.file, tree, tree), *others])
    draws = list(search.draws(dataset, place, _DEPTH))
    _, where = min(draws, key=lambda pair: pair[0], default=(0, None))
    return where


def _whole(file: str) -> _Place:
    tree = parsed(file) or ast.Module([], [])
    return _Place(file, tree, tree)


class _Search:
    """For what an expression is made of, through the files of a script."""

    def __init__(self, files: Iterable[_Place]) -> None:
        self._defined: defaultdict[str, list[tuple[_Place, _Definition]]] = defaultdict(list)
        self._calls: defaultdict[str, list[tuple[_Place, ast.Call]]] = defaultdict(list)
        self._depths: dict[tuple[int, int, int | None], int] = {}
        """Of expressions that were looked at, the most that was left to go then."""
        self._tables: dict[str, list[str]] = {}
        """What dictionaries of functions or classes hold, by their name."""
        for file in files:
            for node in ast.walk(file.tree):
                if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                    self._defined[node.name].append((file, node))
                elif isinstance(node, ast.Call):
                    self._calls[called_name(node)].append((file, node))
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
                    of_dict = [value.id for value in node.value.values if isinstance(value, ast.Name)]
                    self._tables.update({name.id: of_dict for t in node.targets for name in _names(t)})
        self._seeded = {
            match[1]
            for calls in (self._calls["seed"], self._calls["manual_seed"])
            for _, call in calls
            if (match := _SEEDS.fullmatch(ast.unparse(call))) is not None
        }

    def draws(
        self, value: ast.AST, place: _Place, depth: int, part: int | None = None
    ) -> Iterator[tuple[int, Where]]:
        """The draws in an expression and in what it is made of; the likeliest kind has the least number.

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
        names = {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
        for node in own_nodes(place.scope):
            if isinstance(node, ast.Assign) and names & {n.id for t in node.targets for n in _names(t)}:
                yield from self.draws(node.value, place, depth - 1, _part(node, names))
            elif isinstance(node, ast.Expr) and names & {n.id for n in _names(node.value)}:
                yield from self._inside([node.value], place)
        if isinstance(place.scope, FUNCTIONS):
            yield from self._of_callers(names, place, place.scope, depth - 1)
        calls = (node for node in ast.walk(value) if isinstance(node, ast.Call))
        for name in sorted({name for call in calls for name in self._called(call)}):
            yield from self._of_definitions(name, depth - 1, part)

    def _called(self, call: ast.Call) -> list[str]:
        """The names of what may be called: all that a dictionary holds, where it is one of them."""
        function = call.func
        if isinstance(function, ast.Subscript) and isinstance(function.value, ast.Name):
            return self._tables.get(function.value.id, [])
        return [called_name(call)]

    def _of_definitions(self, name: str, depth: int, part: int | None) -> Iterator[tuple[int, Where]]:
        """The draws in functions of this name, in what they return, and in constructors of classes."""
        for file, definition in self._defined[name]:
            if part is None:
                yield from self._inside(_body(definition), file)
            if isinstance(definition, FUNCTIONS):
                yield from self._of_returns(definition, file, depth, part)

    def _of_returns(
        self, function: _Function, file: _Place, depth: int, part: int | None
    ) -> Iterator[tuple[int, Where]]:
        """The draws in what a function returns."""
        for node in own_nodes(function):
            value = node.value if isinstance(node, ast.Return) else None
            if isinstance(value, ast.Tuple) and part is not None and part < len(value.elts):
                value = value.elts[part]
            if value is not None:
                yield from self.draws(value, _Place(file.file, file.tree, function), depth)

    def _of_callers(
        self, names: set[str], place: _Place, function: _Function, depth: int
    ) -> Iterator[tuple[int, Where]]:
        """The draws in what callers give to the function in which the names are its parameters."""
        parameters = [argument.arg for argument in function.args.args if argument.arg not in ("self", "cls")]
        for file, call in self._calls[function.name]:
            caller = _Place(file.file, file.tree, enclosing_function(file.tree, call.lineno))
            for position, name in enumerate(parameters):
                given = _argument(call, position, name) if name in names else None
                if given is not None:
                    yield from self.draws(given, caller, depth)

    def _inside(self, nodes: Iterable[ast.AST], place: _Place) -> Iterator[tuple[int, Where]]:
        for node in nodes:
            if isinstance(node, ast.expr) and (kind := self._kind(node)):
                function = getattr(enclosing_function(place.tree, node.lineno), "name", "<module>")
                yield kind, Where(place.file, node.lineno, function)
            if not _hides_order(node):
                yield from self._inside(ast.iter_child_nodes(node), place)

    def _kind(self, node: ast.AST) -> int:
        """1 for random numbers, 2 for a set, 3 for a folder's files, 0 for none of them."""
        if isinstance(node, ast.Set | ast.SetComp):
            return 2
        if not isinstance(node, ast.Call) or any(keyword.arg in _SEEDED for keyword in node.keywords):
            return 0
        name = ast.unparse(node.func)
        if _DRAWS.fullmatch(name):
            return 0 if name.rpartition(".")[0] in self._seeded else 1
        return 2 if name == "set" else 3 if _LISTS.fullmatch(name) else 0


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
    made = (it for it in definition.body if isinstance(it, FUNCTIONS) and it.name == "__init__")
    return [statement for constructor in made for statement in constructor.body]


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
