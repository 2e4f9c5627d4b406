"""Which functions a call may call, who calls a function, and what parameters are given."""

import ast
import builtins
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from ddpdoctor.program import known
from ddpdoctor.program.chains import Definition
from ddpdoctor.program.files import (
    FUNCTIONS,
    File,
    Function,
    default_of,
    is_static,
    returned,
    returns_its_object,
)
from ddpdoctor.program.index import Context, Entity, Index, Point, Referent

PARTIAL = "functools.partial"
MOST_CALLS = 3
"""Calls that are told apart on the way into functions."""


class Calls(Index):
    """The call graph of one program, of its files by path, which needs to know what expressions name; ``called`` are
    the qualified names of what a run called at a line, by file and line."""

    def __init__(self, files: Mapping[str, File], called: Mapping[tuple[str, int], Sequence[str]]) -> None:
        super().__init__(files)
        self._called = called
        self._callers: dict[ast.AST, list[tuple[ast.Call, File]]] = self._answers["callers"]
        self._by_value: dict[Referent, list[tuple[ast.Call, File]]] | None = None

    @abstractmethod
    def ends(self, point: Point) -> list[Point]: ...

    @abstractmethod
    def referents(self, point: Point) -> frozenset[Referent]: ...

    @abstractmethod
    def types(self, point: Point) -> frozenset[Referent]: ...

    @abstractmethod
    def _types_of(self, end: Point) -> Iterator[Referent]: ...

    @abstractmethod
    def _names_of(self, end: Point) -> Iterator[Referent]: ...

    @abstractmethod
    def contents(self, point: Point) -> list[tuple[object, Point]]: ...

    @abstractmethod
    def elements(self, points: list[Point], path: Sequence[object]) -> list[Point]: ...

    @abstractmethod
    def _member(self, owner: Point, name: str) -> list[Point]: ...

    @abstractmethod
    def _of_class(self, of_class: Entity, name: str) -> list[Point]: ...

    @abstractmethod
    def _subclasses(self, bases: Sequence[Entity]) -> list[Entity]: ...

    def called(self, point: Point) -> frozenset[Referent]:
        """The functions that a call may call: of a class its constructor, of an object its ``__call__``."""
        node = point.node
        assert isinstance(node, ast.Call)
        function = point.at(node.func)
        found: set[Referent] = set()
        for referent in self.referents(function):
            if isinstance(referent, Entity) and isinstance(referent.node, ast.ClassDef):
                found |= self._methods(referent, "__init__") or {referent}
            else:
                found.add(referent)
        if not found:
            found = set(self._called_value(function))
        if not any(isinstance(it, Entity) or known.is_known(it) for it in found):
            ran = self._called.get((point.file.path, node.lineno), ())
            found = {known.canonical(it) for it in ran} or found
        return frozenset(found)

    def _methods(self, of_class: Entity, name: str) -> set[Referent]:
        points = self._of_class(of_class, name)
        return {it for point in points for it in self._names_of(point) if isinstance(it, Entity)}

    def _called_value(self, function: Point) -> Iterator[Referent]:
        for end in self.ends(function):
            for of_type in self._types_of(end):
                if of_type in known.WRAPPERS and isinstance(end.node, ast.Call) and end.node.args:
                    yield from self._called_value(end.at(end.node.args[0]))
                else:
                    yield from self._called_object(of_type)

    def _called_object(self, of_type: Referent) -> Iterator[Referent]:
        if isinstance(of_type, str):
            yield f"{of_type}.__call__"
            return
        yield from self._methods(of_type, "__call__") or self._methods(of_type, "forward")

    def _stands_for_arguments(self, point: Point, node: ast.Call) -> bool:
        return any(it in known.RETURNS_ITS_ARGUMENTS for it in self.referents(point.at(node.func)))

    def _result(self, point: Point, node: ast.Call) -> list[Point]:
        """What a call returns that is something else's value."""
        if self._stands_for_arguments(point, node):
            return [point.at(node.args[0])] if len(node.args) == 1 else []
        called = self.called(point)
        if "builtins.getattr" in called and len(node.args) > 1:
            return [*self._got(point, node), *(point.at(it) for it in node.args[2:])]
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
            owner, key = point.at(node.func.value), node.args[0]
            if isinstance(key, ast.Constant) and self.contents(owner):
                return [*self.elements([owner], [key.value]), *(point.at(it) for it in node.args[1:])]
        if "dataclasses.field" in called:
            return [it for given in node.keywords for it in self._field(point, given)]
        if returns_its_object(node) and all(isinstance(it, str) for it in called):
            assert isinstance(node.func, ast.Attribute)
            return [] if self._is_of_module(point, node) else [point.at(node.func.value)]
        depth = point.context.depth if point.context else 0
        outer = point.context if depth < MOST_CALLS else None
        inside = Context(node, point.file, outer, depth + 1 if depth < MOST_CALLS else 1)
        entities = [(it.node, it.file) for it in called if isinstance(it, Entity)]
        own = [(it, file) for it, file in entities if isinstance(it, FUNCTIONS) and it.name != "__init__"]
        found = [Point(value, file, inside) for it, file in own for value in returned(it)]
        ends = () if called else self.ends(point.at(node.func))
        lambdas = (it for it in ends if isinstance(it.node, ast.Lambda))
        return found + [Point(it.node.body, it.file, inside) for it in lambdas]  # type: ignore[union-attr]

    def _field(self, point: Point, given: ast.keyword) -> list[Point]:
        """What the field of a data class begins with."""
        if given.arg == "default":
            return [point.at(given.value)]
        if given.arg != "default_factory":
            return []
        if isinstance(given.value, ast.Lambda):
            return [point.at(given.value.body)]
        entities = [it for it in self.referents(point.at(given.value)) if isinstance(it, Entity)]
        functions = [(it.node, it.file) for it in entities if isinstance(it.node, FUNCTIONS)]
        made = [Point(it, file) for node, file in functions for it in returned(node)]
        return made or [point.at(given.value)]

    def _got(self, point: Point, node: ast.Call) -> list[Point]:
        """What ``getattr`` gives: of a name that is put together from others, each attribute that it may be."""
        owner, found = point.at(node.args[0]), list[Point]()
        for end in self.ends(point.at(node.args[1])):
            if isinstance(end.node, ast.Constant):
                found += self._member(owner, str(end.node.value))
            elif isinstance(end.node, ast.JoinedStr):
                parts = [getattr(it, "value", "") for it in end.node.values]
                pattern = re.compile(".*".join(re.escape(it) if isinstance(it, str) else "" for it in parts))
                files = [it.file for it in self.types(owner) if isinstance(it, Entity)]
                methods = {it.name for file in files for it in file.functions}
                fitting = sorted(filter(pattern.fullmatch, methods))
                found += [it for name in fitting for it in self._member(owner, name)]
        return list(dict.fromkeys(found))

    def callers(self, function: Function) -> list[tuple[ast.Call, File]]:
        """The calls in the program that call a function: those that lead to it, or that nobody can resolve and that
        have the name of this function only."""
        if function not in self._callers:
            self._callers[function] = []
            file = next(it.file for it in self._named[function.name] if it.node is function)
            self._callers[function] = list(self._find_callers(function, file))
        return self._callers[function]

    def _find_callers(self, function: Function, file: File) -> Iterator[tuple[ast.Call, File]]:
        yield from self._called_by_value().get(Entity(function, file), ())
        of_class = file.class_of(function)
        names = [function.name]
        if of_class is not None and function.name in ("__init__", "__call__", "forward"):
            below = self._subclasses([Entity(of_class, file)])
            names += [it.node.name for it in below if isinstance(it.node, ast.ClassDef)]
        only_one = len(self._named[function.name]) == 1 and function.name not in ("__init__", "__call__")
        for name in dict.fromkeys(names):
            for call, where in self._calls_of.get(name, ()):
                called = self.called(Point(call, where))
                # ``model.train()`` of a model that nobody can resolve is no call of a function ``train``.
                may_be = only_one and (of_class is not None or isinstance(call.func, ast.Name))
                if Entity(function, file) in called or (not called and may_be and name == function.name):
                    yield call, where

    def _called_by_value(self) -> dict[Referent, list[tuple[ast.Call, File]]]:
        """The calls of what a variable, an attribute or a container holds, by the functions that they call."""
        if self._by_value is None:
            self._by_value = {}  # as long as it is under way
            found: defaultdict[Referent, list[tuple[ast.Call, File]]] = defaultdict(list)
            for name, calls in self._calls_of.items():
                for call, where in calls if name not in self._named and not hasattr(builtins, name) else ():
                    if not isinstance(call.func, ast.Attribute) or name in self._stores:
                        for it in self.called(Point(call, where)):
                            found[it].append((call, where))
            for answers in self._answers.values():  # found while calls by value were not known
                answers.clear()
            self._by_value = found
        return self._by_value

    def _given(self, point: Point, definition: Definition) -> list[Point]:
        """What callers give as a parameter, and its default."""
        function = point.file.parents[point.file.parents[definition.node]]
        found = [Point(it, point.file) for it in default_of(function, definition.node)]
        if isinstance(function, ast.Lambda):
            return self._given_to_lambda(point.context, function, definition.node) or found
        assert isinstance(function, FUNCTIONS)
        if (context := point.context) is not None:
            call_here = Point(context.call, context.file, context.outer)
            given = self.argument_of(call_here, function, definition.node)
            return [given] if given else found
        for call, file in self.callers(function):
            if given := self.argument_of(Point(call, file), function, definition.node):
                found.append(given)
        return found

    def _given_to_lambda(
        self, context: Context | None, function: ast.Lambda, parameter: ast.AST
    ) -> list[Point]:
        """What the call by which a lambda was entered gives it; nothing where that entered a function around it."""
        if context is None:
            return []
        call = Point(context.call, context.file, context.outer)
        if not any(it.node is function for it in self.ends(call.at(context.call.func))):
            return []
        given = dict(zip(function.args.args, context.call.args, strict=False))
        named = {it.arg: it.value for it in context.call.keywords}
        value = named.get(getattr(parameter, "arg", None)) or given.get(parameter)  # type: ignore[call-overload]
        return [call.at(value)] if value is not None and not isinstance(value, ast.Starred) else []

    def argument_of(self, call: Point, function: Function, parameter: ast.AST) -> Point | None:
        """What a call gives a function for one of its parameters."""
        node = call.node
        assert isinstance(node, ast.Call)
        assert isinstance(parameter, ast.arg)
        partial = self._partial(call)
        for at in (call, partial) if partial else (call,):
            for keyword in at.node.keywords:  # type: ignore[union-attr]
                if keyword.arg == parameter.arg:
                    return at.at(keyword.value)
                named = self.contents(at.at(keyword.value)) if keyword.arg is None else ()
                if (held := next((it for name, it in named if name == parameter.arg), None)) is not None:
                    return held
        positional = [*function.args.posonlyargs, *function.args.args]
        if parameter not in positional:
            return None
        position = positional.index(parameter)
        bound = self._is_bound(call, node, function)
        if bound and position == 0:
            return call.at(node.func.value) if isinstance(node.func, ast.Attribute) and not partial else None
        given = [partial.at(it) for it in partial.node.args[1:]] if partial else []  # type: ignore[union-attr]
        for it in node.args:
            more = [call.at(it)]
            if isinstance(it, ast.Starred):
                more = [held for _, held in self.contents(call.at(it.value))]
            if not more:
                break
            given += more
        return given[position - bound] if position - bound < len(given) else None

    def _partial(self, call: Point) -> Point | None:
        """The ``functools.partial(...)`` that a call calls."""
        function = getattr(call.node, "func", None)
        if not isinstance(function, ast.Name | ast.Attribute | ast.Subscript):
            return None
        ends = (it for it in self.ends(call.at(function)) if isinstance(it.node, ast.Call))
        return next((it for it in ends if PARTIAL in self.referents(it.at(it.node.func))), None)  # type: ignore[union-attr]

    def _is_bound(self, call: Point, node: ast.Call, function: Function) -> bool:
        """Whether a call gives the first parameter of a method as its object."""
        file = next(it.file for it in self._named[function.name] if it.node is function)
        if file.class_of(function) is None or is_static(function):
            return False
        if not isinstance(node.func, ast.Attribute) or function.name in ("__init__", "__call__", "forward"):
            return True
        owners = self.referents(call.at(node.func.value))
        return not any(isinstance(it, Entity) and isinstance(it.node, ast.ClassDef) for it in owners)

    def _is_of_module(self, point: Point, call: ast.Call) -> bool:
        """Whether the function of a call is one of a module, and no method of a value."""
        assert isinstance(call.func, ast.Attribute)
        base = point.at(call.func.value)
        return bool(self.referents(base)) and not self.types(base)
