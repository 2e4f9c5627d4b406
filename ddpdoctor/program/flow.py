"""Where values come from: a graph over the program's expressions and definitions, built as far as it is asked for.

An edge leads from a value to what it is made of. Along a COPY it is the same object, so that classes and functions
are found along copies alone; a PART is an operand or an argument; a CHOICE is the condition that decides which of
several definitions holds. Inside a function that was entered through a call, a parameter is what that call gives.
"""

from __future__ import annotations

import ast
import builtins
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ddpdoctor.program import known
from ddpdoctor.program.chains import Chains, Definition, How
from ddpdoctor.program.files import FUNCTIONS, File, Function, Scope, dotted, own_nodes
from ddpdoctor.program.known import Origin
from ddpdoctor.recorder import launchers

_DEPTH = 3
"""Calls that are told apart on the way into functions."""
_MOST = 6000
"""Points that are looked at for one question."""
_ONE_OF = (ast.Tuple, ast.List, ast.Set)


@dataclass(frozen=True)
class Context:
    """The call through which a function was entered."""

    call: ast.Call
    file: File
    outer: Context | None
    depth: int = 1


@dataclass(frozen=True)
class Point:
    """A value: an expression, or a definition of a variable."""

    node: ast.AST | Definition
    file: File
    context: Context | None = None

    def at(self, node: ast.AST | Definition) -> Point:
        """Another value of the same function."""
        return Point(node, self.file, self.context)


@dataclass(frozen=True)
class Entity:
    """A function, a class or a module of the program."""

    node: Function | ast.ClassDef | ast.Module
    file: File


Referent: TypeAlias = "Entity | str"
"""What an expression names: something of the program, or a library's by its qualified name."""


class Leaf(NamedTuple):
    """Where a value begins."""

    origin: Origin
    name: str


@dataclass
class Made:
    """What a value is made of."""

    parts: list[Point] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)


class Flow:
    """The graph of one program.

    Args:
        files: of the program, by path.
        called: the qualified names of what a run called at a line, by file and line.
    """

    def __init__(self, files: Mapping[str, File], called: Mapping[tuple[str, int], Sequence[str]]) -> None:
        self.files = files
        self._called = called
        self._chains: dict[Scope, Chains] = {}
        self._copies: dict[Point, list[Point]] = {}
        self._made: dict[Point, Made] = {}
        self._referents: dict[Point, frozenset[Referent]] = {}
        self._under_way: set[object] = set()
        self._callers: dict[ast.AST, list[tuple[ast.Call, File]]] = {}
        self._rank_ends: set[object] | None = None
        self._calls_of: defaultdict[str, list[tuple[ast.Call, File]]] = defaultdict(list)
        self._stores: defaultdict[str, list[tuple[ast.Attribute, File]]] = defaultdict(list)
        self._named: defaultdict[str, list[Entity]] = defaultdict(list)
        self._globals: defaultdict[tuple[str, str], list[Scope]] = defaultdict(list)
        self._sets: dict[ast.ClassDef, dict[str, set[str]]] = {}
        for file in files.values():
            for call in file.calls:
                self._calls_of[name_called(call)].append((call, file))
            for store in file.stores:
                self._stores[store.attr].append((store, file))
            for definition in (*file.functions, *file.classes):
                self._named[definition.name].append(Entity(definition, file))
            for node in file.scopes:
                if isinstance(node, ast.Global):
                    for name in node.names:
                        self._globals[file.path, name].append(file.scopes[node])

    # Definitions.

    def chains(self, scope: Scope, file: File) -> Chains:
        """The definitions of a scope."""
        known_chains = self._chains.get(scope)
        if known_chains is None:
            class_of = file.class_of(scope)
            own = self._sets_of(class_of) if class_of is not None else {}
            known_chains = self._chains[scope] = Chains(scope, lambda call: own.get(name_called(call), ()))
        return known_chains

    def _sets_of(self, definition: ast.ClassDef) -> dict[str, set[str]]:
        """The attributes of its object that each method of a class sets, by itself or through others."""
        if definition not in self._sets:
            methods = {it.name: it for it in definition.body if isinstance(it, FUNCTIONS)}
            sets = {
                name: {
                    part.attr
                    for part in ast.walk(method)
                    if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store)
                }
                for name, method in methods.items()
            }
            calls = {
                name: {name_called(it) for it in ast.walk(method) if isinstance(it, ast.Call)}
                & methods.keys()
                for name, method in methods.items()
            }
            for _ in methods:
                before = sum(map(len, sets.values()))
                for name, called in calls.items():
                    sets[name] = sets[name].union(*(sets[other] for other in called))
                if sum(map(len, sets.values())) == before:
                    break
            self._sets[definition] = sets
        return self._sets[definition]

    def _reaching(self, node: ast.AST, file: File) -> tuple[list[Definition], bool]:
        """The definitions that reach a use in its function, and whether others may."""
        found = self.chains(file.scopes[node], file).uses.get(node, frozenset())
        own = [it for it in found if it.how is not How.ELSEWHERE]
        return own, len(own) < len(found) or not found

    def _outer(self, name: str, scope: Scope, file: File) -> list[Definition]:
        """The definitions of a name that a function does not set itself."""
        above = [it for it in file.above(scope) if isinstance(it, (*FUNCTIONS, ast.Lambda, ast.Module))]
        for around in (scope, *above):
            if around is scope and not isinstance(scope, ast.Module):
                continue
            found = list(self.chains(around, file).all.get(name, ()))
            if isinstance(around, ast.Module):
                for function in self._globals.get((file.path, name), ()):
                    found += self.chains(function, file).all.get(name, ())
            if found := [it for it in found if it.how is not How.GIVEN]:
                return found
        return []

    def _of_module(self, name: str, file: File) -> list[Point]:
        return [Point(it, file) for it in self._outer(name, file.tree, file)]

    # Copies: where an object comes from.

    def copies(self, point: Point) -> list[Point]:
        """The values that are the same object as this one."""
        if point not in self._copies:
            if point in self._under_way:
                return []
            self._under_way.add(point)
            node = point.node
            try:
                copies = (
                    self._of_definition(point, node)
                    if isinstance(node, Definition)
                    else self._same(point, node)
                )
            finally:
                self._under_way.discard(point)
            self._copies[point] = copies
        return self._copies[point]

    def _of_definition(self, point: Point, definition: Definition) -> list[Point]:
        if definition.how is How.PARAMETER:
            return self._given(point, definition)
        if definition.how is How.IMPORTED:
            return self._imported(point.file, definition)
        if definition.how is How.ELSEWHERE:
            return self._attribute_elsewhere(point, definition)
        if definition.how in (How.GIVEN, How.CHANGED):
            return [same for it in definition.before for same in self._before(point, definition, it)]
        if definition.how is How.ASSIGNED and definition.value is not None:
            return self._elements([point.at(definition.value)], definition.path)
        return []

    def _before(self, point: Point, definition: Definition, before: Definition) -> list[Point]:
        """What a variable held before it was changed."""
        if before.how is How.ELSEWHERE and isinstance(definition.node, ast.Attribute):
            return self._member(point, definition.node)
        return [point.at(before)]

    def _attribute_elsewhere(self, point: Point, definition: Definition) -> list[Point]:
        """What a variable holds that a function reads before it sets it."""
        if "." not in definition.key:
            return [
                Point(it, point.file) for it in self._outer(definition.key, _scope(definition), point.file)
            ]
        return []

    def _elements(self, points: list[Point], path: Sequence[int | str]) -> list[Point]:
        """The elements at some positions, one inside the other, of what these are."""
        for key in path:
            points = [element for point in points for element in self._element(point, key)]
        return points

    def _element(self, point: Point, key: object) -> Iterator[Point]:
        """The element of a container by a constant; the container where it is not known."""
        for end in self.ends(point):
            node = end.node
            if (
                isinstance(node, ast.Tuple | ast.List)
                and isinstance(key, int)
                and -len(node.elts) <= key < len(node.elts)
            ):
                yield end.at(node.elts[key])
            elif isinstance(node, ast.Dict):
                held = [
                    value
                    for name, value in zip(node.keys, node.values, strict=True)
                    if isinstance(name, ast.Constant) and name.value == key
                ]
                yield from (end.at(value) for value in held or [node])
            elif (
                isinstance(node, ast.Call) and self._stands_for_arguments(end, node) and isinstance(key, int)
            ):
                yield end.at(node.args[key] if key < len(node.args) else node)
            else:
                yield end

    def _same(self, point: Point, node: ast.AST) -> list[Point]:
        match node:
            case ast.Name():
                found = self._named_by(point, node)
            case ast.Attribute():
                found = self._attribute(point, node)
            case ast.Subscript():
                found = self._subscript(point, node)
            case ast.Call():
                found = self._result(point, node)
            case ast.IfExp():
                found = [point.at(node.body), point.at(node.orelse)]
            case ast.BoolOp():
                found = [point.at(value) for value in node.values]
            case ast.NamedExpr() | ast.Await() | ast.Starred():
                found = [point.at(node.value)]
            case _:
                found = []
        return found

    def _named_by(self, point: Point, node: ast.Name) -> list[Point]:
        own, others = self._reaching(node, point.file)
        found = [point.at(it) for it in own]
        if others:
            found += [
                Point(it, point.file) for it in self._outer(node.id, point.file.scopes[node], point.file)
            ]
        return found

    def _subscript(self, point: Point, node: ast.Subscript) -> list[Point]:
        own, others = self._reaching(node, point.file)
        found = [point.at(it) for it in own]
        if others and isinstance(node.slice, ast.Constant):
            elements = self._element(point.at(node.value), node.slice.value)
            found += [it for it in elements if it.node is not node.value and not _is_container(it.node)]
        elif others and not isinstance(node.slice, ast.Slice):
            tables = (end for end in self.ends(point.at(node.value)) if isinstance(end.node, ast.Dict))
            found += [end.at(value) for end in tables for value in end.node.values]  # type: ignore[union-attr]
        return found

    def _attribute(self, point: Point, node: ast.Attribute) -> list[Point]:
        own, others = self._reaching(node, point.file)
        found = [point.at(it) for it in own]
        if others:
            found += self._member(point, node)
        return list(dict.fromkeys(found))

    def _member(self, point: Point, node: ast.Attribute) -> list[Point]:
        """What an attribute of a module, a class or an object is."""
        found: list[Point] = []
        for referent in self.referents(point.at(node.value)):
            if isinstance(referent, Entity) and isinstance(referent.node, ast.Module):
                found += self._of_module(node.attr, referent.file)
            elif isinstance(referent, Entity) and isinstance(referent.node, ast.ClassDef):
                found += self._of_class(referent, node.attr)
        for of_type in self.types(point.at(node.value)):
            if isinstance(of_type, Entity):
                found += self._of_class(of_type, node.attr)
            found += self._stored(node.attr, of_type)
        return found or [
            it for end in self.ends(point.at(node.value)) for it in self._constructed(end, node.attr)
        ]

    def _constructed(self, end: Point, name: str) -> Iterator[Point]:
        """What a wrapper or a data class was given for an attribute of its own name."""
        if not isinstance(end.node, ast.Call):
            return
        for referent in self.referents(end.at(end.node.func)):
            if isinstance(referent, str) and known.WRAPPERS.get(referent) == name and end.node.args:
                yield end.at(end.node.args[0])
            elif isinstance(referent, Entity) and isinstance(referent.node, ast.ClassDef):
                fields = [dotted(it.target) for it in referent.node.body if isinstance(it, ast.AnnAssign)]
                given = argument(end.node, fields.index(name), name) if name in fields else None
                yield from [end.at(given)] if given is not None else []

    def _of_class(self, of_class: Entity, name: str) -> list[Point]:
        """What a class, or a base of it, defines under a name."""
        for entity in self.family(of_class):
            scope = entity.node
            assert isinstance(scope, ast.ClassDef)
            if definitions := self.chains(scope, entity.file).all.get(name):
                return [Point(it, entity.file) for it in definitions]
        return []

    def _stored(self, name: str, of_type: Referent) -> list[Point]:
        """What the program assigns to an attribute of objects of a class."""
        found = []
        for store, file in self._stores.get(name, ()):
            definition = self.chains(file.scopes[store], file).definition(store)
            if definition is not None and of_type in self._owners(store, file):
                found.append(Point(definition, file))
        return found

    def _owners(self, store: ast.Attribute, file: File) -> Iterable[Referent]:
        """The classes of the object whose attribute is assigned, with those that have it for a base."""
        types = self.types(Point(store.value, file))
        own = [it for it in types if isinstance(it, Entity)]
        return {*types, *(base for it in own for base in self.family(it)), *self._subclasses(own)}

    def _subclasses(self, bases: Sequence[Entity]) -> list[Entity]:
        classes = (
            it for entities in self._named.values() for it in entities if isinstance(it.node, ast.ClassDef)
        )
        return [it for it in classes if bases and any(base in self.family(it) for base in bases)]

    def family(self, of_class: Entity) -> list[Entity]:
        """A class and those of its bases that the program defines."""
        found = [of_class]
        for entity in found:  # which grows
            bases = entity.node.bases if isinstance(entity.node, ast.ClassDef) else []
            for base in bases:
                referents = self.referents(Point(base, entity.file))
                found += [it for it in referents if isinstance(it, Entity) and it not in found]
        return [it for it in found if isinstance(it.node, ast.ClassDef)]

    def library_bases(self, of_class: Entity) -> set[str]:
        """The classes of libraries that a class derives from."""
        bases = [
            referent
            for entity in self.family(of_class)
            for base in getattr(entity.node, "bases", ())
            for referent in self.referents(Point(base, entity.file))
        ]
        return {it for it in bases if isinstance(it, str)}

    def _imported(self, file: File, definition: Definition) -> list[Point]:
        """The definitions that an import of something of the program stands for."""
        alias, statement = definition.node, file.parents[definition.node]
        if not isinstance(alias, ast.alias) or not isinstance(statement, ast.ImportFrom):
            return []
        module = self._module(file, statement.level, statement.module or "")
        return self._of_module(alias.name, module) if module else []

    def _module(self, file: File, level: int, name: str) -> File | None:
        """The file of the program that an import in another means."""
        path = Path(file.path)
        folders = [path.parents[level - 1]] if 0 < level <= len(path.parents) else self._roots(path)
        parts = [part for part in name.split(".") if part]
        for folder in folders:
            place = folder.joinpath(*parts)
            for candidate in (place.with_suffix(".py") if parts else place, place / "__init__.py"):
                if (found := self.files.get(str(candidate))) is not None:
                    return found
        return None

    def _roots(self, path: Path) -> list[Path]:
        script = Path(next(iter(self.files)))
        roots = [script.parent, *(it for it in script.parents if not (it / "__init__.py").is_file())][:2]
        return [*roots, path.parent]

    def unread_imports(self, file: File) -> Iterator[str]:
        """The modules that a file imports and that are none of the program."""
        for node in file.imports:
            if isinstance(node, ast.Import):
                yield from (it.name for it in node.names if self._module(file, 0, it.name) is None)
            elif node.level == 0 and node.module:
                inside = (self._module(file, 0, f"{node.module}.{it.name}") for it in node.names)
                if self._module(file, 0, node.module) is None and not any(inside):
                    yield node.module

    def _imported_name(self, file: File, definition: Definition) -> Referent | None:
        """What an import names: a module of the program, or something of a library."""
        alias, statement = definition.node, file.parents[definition.node]
        assert isinstance(alias, ast.alias)
        if isinstance(statement, ast.ImportFrom):
            base = statement.module or ""
            name, level = f"{base}.{alias.name}" if base else alias.name, statement.level
        else:
            name, level = (alias.name if alias.asname else alias.name.partition(".")[0]), 0
        module = self._module(file, level, name)
        return Entity(module.tree, module) if module else known.canonical(name) if not level else None

    # Names and classes.

    def ends(self, point: Point) -> list[Point]:
        """The values of which this one is a copy, and which are copies of nothing."""
        waiting, visited, ends = [point], {point}, []
        for now in waiting:  # which grows
            copies = self.copies(now)
            if not copies:
                ends.append(now)
            waiting += [it for it in dict.fromkeys(copies) if it not in visited]
            visited.update(copies)
            if len(waiting) > _MOST:
                break
        return ends

    def referents(self, point: Point) -> frozenset[Referent]:
        """What an expression names: functions, classes, modules and what libraries have."""
        if point not in self._referents:
            key = ("referents", point)
            if key in self._under_way:
                return frozenset()
            self._under_way.add(key)
            try:
                found = frozenset(it for end in self.ends(point) for it in self._names_of(end))
            finally:
                self._under_way.discard(key)
            self._referents[point] = found
        return self._referents[point]

    def _names_of(self, end: Point) -> Iterator[Referent]:
        node = end.node
        if isinstance(node, Definition):
            if node.how is How.DEFINED and isinstance(node.node, (*FUNCTIONS, ast.ClassDef)):
                yield Entity(node.node, end.file)
            elif node.how is How.IMPORTED and (imported := self._imported_name(end.file, node)) is not None:
                yield imported
        elif isinstance(node, ast.Name):
            if hasattr(builtins, node.id):
                yield f"builtins.{node.id}"
        elif isinstance(node, ast.Attribute):
            base = end.at(node.value)
            for referent in (*self.referents(base), *self.types(base)):
                if isinstance(referent, str):
                    yield self._submodule(end.file, f"{referent}.{node.attr}")
                else:
                    yield from (f"{name}.{node.attr}" for name in self._libraries_of(referent))

    def _libraries_of(self, referent: Entity) -> set[str]:
        return self.library_bases(referent) if isinstance(referent.node, ast.ClassDef) else set()

    def _submodule(self, file: File, name: str) -> Referent:
        module = self._module(file, 0, name) if name.count(".") < 8 else None
        return Entity(module.tree, module) if module else known.canonical(name)

    def types(self, point: Point) -> frozenset[Referent]:
        """The classes of a value; of what a library's function returned, the function's name."""
        key = ("types", point)
        if key in self._under_way:
            return frozenset()
        self._under_way.add(key)
        try:
            return frozenset(it for end in self.ends(point) for it in self._types_of(end))
        finally:
            self._under_way.discard(key)

    def _types_of(self, end: Point) -> Iterator[Referent]:
        node = end.node
        if isinstance(node, ast.Call):
            for referent in self.referents(end.at(node.func)):
                if isinstance(referent, str) or isinstance(referent.node, ast.ClassDef):
                    yield referent
        elif isinstance(node, Definition) and node.how is How.PARAMETER:
            if (of_class := self._class_of_self(node, end.file)) is not None:
                yield of_class
            elif hook := self._hook_type(node, end.file):
                yield hook
            elif (annotation := getattr(node.node, "annotation", None)) is not None:
                yield from self.referents(Point(_annotated(annotation), end.file))
        elif isinstance(node, ast.Attribute):
            yield from (it for it in self.referents(end) if isinstance(it, str))

    def _hook_type(self, definition: Definition, file: File) -> str:
        """The class of what a library gives a method that it calls."""
        function = file.parents[file.parents[definition.node]]
        of_class = file.class_of(function)
        if (
            of_class is None
            or not isinstance(function, FUNCTIONS)
            or definition.node not in function.args.args
        ):
            return ""
        given = [known.HOOKS[it] for it in self.library_bases(Entity(of_class, file)) if it in known.HOOKS]
        position = function.args.args.index(definition.node)
        return given[0][position] if given and position < len(given[0]) else ""

    def _is_batch(self, definition: Definition, file: File) -> bool:
        """Whether a library gives a batch of the rank's own."""
        function = file.parents[file.parents[definition.node]]
        of_class = file.class_of(function)
        if (
            of_class is None
            or not isinstance(function, FUNCTIONS)
            or function.args.args[1:2] != [definition.node]
        ):
            return False
        return any(
            function.name in known.DATA_HOOKS.get(it, ()) for it in self.library_bases(Entity(of_class, file))
        )

    def _class_of_self(self, definition: Definition, file: File) -> Entity | None:
        """The class whose object a method gets as its first parameter."""
        function = file.parents[file.parents[definition.node]]
        of_class = file.class_of(function)
        if of_class is None or not isinstance(function, FUNCTIONS):
            return None
        first = next(iter((*function.args.posonlyargs, *function.args.args)), None)
        return Entity(of_class, file) if first is definition.node and not _is_static(function) else None

    # Calls.

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
            found = {
                known.canonical(it) for it in self._called.get((point.file.path, node.lineno), ())
            } or found
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
        if _returns_its_object(node) and all(isinstance(it, str) for it in called):
            assert isinstance(node.func, ast.Attribute)
            return [] if _is_of_module(self, point, node) else [point.at(node.func.value)]
        found = []
        depth = point.context.depth if point.context else 0
        for entity in called:
            if (
                isinstance(entity, Entity)
                and isinstance(entity.node, FUNCTIONS)
                and entity.node.name != "__init__"
            ):
                outer = point.context if depth < _DEPTH else None
                inside = Context(node, point.file, outer, depth + 1 if depth < _DEPTH else 1)
                found += [Point(value, entity.file, inside) for value in returned(entity.node)]
        return found

    def callers(self, function: Function) -> list[tuple[ast.Call, File]]:
        """The calls in the program that call a function: those that lead to it, or that nobody can resolve and that
        have the name of this function only."""
        if function not in self._callers:
            self._callers[function] = []
            file = next(it.file for it in self._named[function.name] if it.node is function)
            self._callers[function] = list(self._find_callers(function, file))
        return self._callers[function]

    def _find_callers(self, function: Function, file: File) -> Iterator[tuple[ast.Call, File]]:
        of_class = file.class_of(function)
        names = [function.name]
        if of_class is not None and function.name in ("__init__", "__call__", "forward"):
            below = self._subclasses([Entity(of_class, file)])
            names += [it.node.name for it in below if isinstance(it.node, ast.ClassDef)]
        only_one = len(self._named[function.name]) == 1 and function.name not in ("__init__", "__call__")
        for name in names:
            for call, where in self._calls_of.get(name, ()):
                called = self.called(Point(call, where))
                # ``model.train()`` of a model that nobody can resolve is no call of a function ``train``.
                may_be = only_one and (of_class is not None or isinstance(call.func, ast.Name))
                if Entity(function, file) in called or (not called and may_be and name == function.name):
                    yield call, where

    def _given(self, point: Point, definition: Definition) -> list[Point]:
        """What callers give as a parameter, and its default."""
        function = point.file.parents[point.file.parents[definition.node]]
        found = [Point(it, point.file) for it in _default(function, definition.node)]
        if isinstance(function, ast.Lambda):
            return found
        assert isinstance(function, FUNCTIONS)
        context = point.context
        if context is not None:
            given = self.argument_of(
                Point(context.call, context.file, context.outer), function, definition.node
            )
            return [given] if given else found
        for call, file in self.callers(function):
            if given := self.argument_of(Point(call, file), function, definition.node):
                found.append(given)
        return found

    def argument_of(self, call: Point, function: Function, parameter: ast.AST) -> Point | None:
        """What a call gives a function for one of its parameters."""
        node = call.node
        assert isinstance(node, ast.Call)
        assert isinstance(parameter, ast.arg)
        for keyword in node.keywords:
            if keyword.arg == parameter.arg:
                return call.at(keyword.value)
        positional = [*function.args.posonlyargs, *function.args.args]
        if parameter not in positional:
            return None
        position = positional.index(parameter)
        bound = self._is_bound(call, node, function)
        if bound and position == 0:
            return call.at(node.func.value) if isinstance(node.func, ast.Attribute) else None
        position -= bound
        if any(isinstance(it, ast.Starred) for it in node.args[: position + 1]):
            return None
        return call.at(node.args[position]) if position < len(node.args) else None

    def _is_bound(self, call: Point, node: ast.Call, function: Function) -> bool:
        """Whether a call gives the first parameter of a method as its object."""
        file = next(it.file for it in self._named[function.name] if it.node is function)
        if file.class_of(function) is None or _is_static(function):
            return False
        if not isinstance(node.func, ast.Attribute) or function.name in ("__init__", "__call__", "forward"):
            return True
        owners = self.referents(call.at(node.func.value))
        return not any(isinstance(it, Entity) and isinstance(it.node, ast.ClassDef) for it in owners)

    # Origins.

    def made_of(self, point: Point) -> Made:
        """What a value is made of: its copies, parts and conditions, and where it begins."""
        if point not in self._made:
            node = point.node
            made = (
                self._defined_by(point, node) if isinstance(node, Definition) else self._computed(point, node)
            )
            self._made[point] = made
        return self._made[point]

    def _defined_by(self, point: Point, definition: Definition) -> Made:
        if definition.how is How.PARAMETER:
            return self._parameter(point, definition)
        if definition.how is How.GIVEN:
            return self._after_call(point, definition)
        if definition.how is How.ITERATED and definition.value is not None:
            return self._iterated(point, definition.value, definition.path)
        made = Made([*self.copies(point)])
        if definition.how is How.CHANGED and definition.value is not None:
            made.parts += [point.at(definition.value), *self._indices(point, definition)]
        if definition.how in (How.DEFINED, How.IMPORTED) and not made.parts:
            made.leaves.append(Leaf(Origin.EQUAL, definition.key))
        if definition.how is How.UNKNOWN:
            made.leaves.append(Leaf(Origin.UNKNOWN, definition.key))
        return made

    @staticmethod
    def _indices(point: Point, definition: Definition) -> list[Point]:
        target = definition.node
        return [point.at(target.slice)] if isinstance(target, ast.Subscript) else []

    def _parameter(self, point: Point, definition: Definition) -> Made:
        if self._class_of_self(definition, point.file) is not None:
            return Made([], [Leaf(Origin.EQUAL, definition.key)])
        if definition.node in self.rank_ends() or self._is_spawned(definition, point.file):
            return Made([], [Leaf(Origin.RANK, definition.key)])
        if self._is_batch(definition, point.file):
            return Made([], [Leaf(Origin.OWN_DATA, definition.key)])
        if self._hook_type(definition, point.file):
            return Made([], [Leaf(Origin.EQUAL, definition.key)])
        found = self.copies(point)
        function = point.file.parents[point.file.parents[definition.node]]
        known_calls = point.context is not None or (
            isinstance(function, FUNCTIONS) and self.callers(function)
        )
        return Made(found, [] if found and known_calls else [Leaf(Origin.UNKNOWN, definition.key)])

    def _is_spawned(self, definition: Definition, file: File) -> bool:
        """Whether torch starts a process with this function, and gives the number of the rank."""
        function = file.parents[file.parents[definition.node]]
        parameters = function.args.args if isinstance(function, FUNCTIONS) else []
        if not parameters or parameters[0] is not definition.node:
            return False
        spawning = [it for name in known.SPAWNS for it in self._calls_of[name.rpartition(".")[2]]]
        return any(
            call.args
            and any(it in known.SPAWNS for it in self.referents(Point(call.func, where)))
            and Entity(function, file) in self.referents(Point(call.args[0], where))  # type: ignore[arg-type]
            for call, where in spawning
        )

    def _after_call(self, point: Point, definition: Definition) -> Made:
        """What a variable holds after a call that was given it."""
        call = definition.value
        assert isinstance(call, ast.Call)
        before = Made([*self.copies(point)])
        at_call = point.at(call)
        for referent in self.called(at_call):
            if isinstance(referent, str):
                reduces = referent in known.REDUCES and definition.node in _reduced(call, referent)
            else:
                reduces = self._reduces(at_call, referent, definition.node)
            if reduces:
                return Made(
                    [], [Leaf(Origin.REDUCED, referent if isinstance(referent, str) else name_called(call))]
                )
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if definition.node is owner and _changes(call):
            before.parts += [point.at(it) for it in arguments(call)]
        return before

    def _reduces(self, call: Point, called: Entity, given: ast.AST) -> bool:
        """Whether a function of the program makes what it is given the same on all ranks, in place."""
        function = called.node
        if not isinstance(function, FUNCTIONS):
            return False
        end, key = self.chains(function, called.file).end, ("reduces", function)
        if end is None or key in self._under_way:
            return False
        self._under_way.add(key)
        try:
            for parameter in (*function.args.posonlyargs, *function.args.args):
                point = self.argument_of(call, function, parameter)
                if point is not None and point.node is given:
                    last = end.get(parameter.arg, frozenset())
                    return bool(last) and all(self._is_reduced(Point(it, called.file), 0) for it in last)
            return False
        finally:
            self._under_way.discard(key)

    def _is_reduced(self, point: Point, depth: int) -> bool:
        """Whether the calls that a parameter was given to made it equal."""
        definition = point.node
        if not isinstance(definition, Definition) or definition.how is not How.GIVEN or depth > 20:
            return False
        made = self.made_of(point)
        if made.leaves:
            return any(leaf.origin is Origin.REDUCED for leaf in made.leaves)
        return bool(definition.before) and all(
            self._is_reduced(point.at(it), depth + 1) for it in definition.before
        )

    def _iterated(self, point: Point, iterated: ast.expr, path: tuple[int, ...]) -> Made:
        """The element of a loop."""
        made = Made()
        for end in self.ends(point.at(iterated)):
            node = end.node
            names = self._library_names(end, node) if isinstance(node, ast.Call) else set()
            if names & known.LOADERS:
                made.leaves.append(Leaf(Origin.OWN_DATA, next(iter(names & known.LOADERS))))
            elif "builtins.enumerate" in names and isinstance(node, ast.Call) and node.args:
                if path[:1] == (0,):
                    made.leaves.append(Leaf(Origin.EQUAL, "enumerate"))
                else:
                    inner = self._iterated(end, node.args[0], path[1:])
                    made.parts += inner.parts
                    made.leaves += inner.leaves
            elif "builtins.zip" in names and isinstance(node, ast.Call) and path and path[0] < len(node.args):
                inner = self._iterated(end, node.args[path[0]], path[1:])
                made.parts += inner.parts
                made.leaves += inner.leaves
            else:
                made.parts.append(end)
        return made

    def _library_names(self, point: Point, call: ast.Call) -> set[str]:
        return {it for it in self.called(point) if isinstance(it, str)}

    def _computed(self, point: Point, node: ast.AST) -> Made:
        if node in self.rank_ends():
            return Made([], [Leaf(Origin.RANK, ast.unparse(node))])
        match node:
            case ast.Constant():
                made = Made([], [Leaf(Origin.EQUAL, repr(node.value))])
            case ast.Name():
                made = self._of_variable(point, node)
            case ast.Attribute():
                made = self._of_attribute(point, node)
            case ast.Subscript():
                made = self._of_subscript(point, node)
            case ast.Call():
                made = self._of_call(point, node)
            case ast.Lambda():
                made = Made([], [Leaf(Origin.EQUAL, "lambda")])
            case _:
                made = Made([point.at(it) for it in _operands(node)])
        return made

    def _of_variable(self, point: Point, node: ast.Name) -> Made:
        copies = self.copies(point)
        if not copies:
            origin = Origin.EQUAL if hasattr(builtins, node.id) else Origin.UNKNOWN
            return Made([], [Leaf(origin, node.id)])
        return Made([*copies, *self._choices(point, node)])

    def _choices(self, point: Point, use: ast.expr) -> list[Point]:
        """The conditions that decide which of several definitions of a variable holds."""
        own, _ = self._reaching(use, point.file)
        if len(own) < 2:
            return []
        around = set(point.file.above(use))
        tests = [
            above.test
            for definition in own
            for above in point.file.above(definition.node)
            if isinstance(above, ast.If | ast.While) and above not in around
        ]
        return [point.at(test) for test in dict.fromkeys(tests)]

    def _of_attribute(self, point: Point, node: ast.Attribute) -> Made:
        copies = self.copies(point)
        names = [it for it in self._names_of(point) if isinstance(it, str)]
        origins = [Leaf(origin, name) for name in names if (origin := known.origin_of(name))]
        is_rank = any((name, node.attr) in self.rank_ends() for name in self.types(point.at(node.value)))
        if origins or is_rank:
            return Made([], origins or [Leaf(Origin.RANK, ast.unparse(node))])
        properties = self._properties(point, copies)
        made = Made([*properties, *copies, *self._choices(point, node)])
        own_types = self.types(point.at(node.value))
        of_own = any(isinstance(it, Entity) for it in own_types)
        if not copies and of_own:
            made.leaves.append(Leaf(Origin.UNKNOWN, ast.unparse(node)))
        elif not copies:
            made.parts.append(point.at(node.value))
        return made

    def _properties(self, point: Point, copies: Iterable[Point]) -> list[Point]:
        """What a property returns."""
        found = []
        for copy in copies:
            definition = copy.node
            function = definition.node if isinstance(definition, Definition) else None
            if isinstance(function, FUNCTIONS) and any(
                "property" in (dotted(it) or "") for it in function.decorator_list
            ):
                found += [Point(value, copy.file) for value in returned(function)]
        return found

    def _of_subscript(self, point: Point, node: ast.Subscript) -> Made:
        if "os.environ" in self.referents(point.at(node.value)):
            return Made([], [_variable(node.slice)])
        copies = self.copies(point)
        if copies and not self._is_reduced_container(point.at(node.value)):
            own, _ = self._reaching(node, point.file)
            of_whole = any(getattr(it.node, "how", None) is How.ELSEWHERE for it in copies)
            of_whole |= bool(own) and all(it.how is How.CHANGED for it in own)
            whole = [point.at(node.value)] if of_whole else []
            return Made([*copies, *whole, *self._choices(point, node)])
        return Made([point.at(node.value), point.at(node.slice)])

    def _is_reduced_container(self, point: Point) -> bool:
        """Whether a collective wrote into a list since it was made."""
        waiting = [point]
        for now in waiting:  # which grows
            node = now.node
            if isinstance(node, Definition) and node.how is How.GIVEN and self.made_of(now).leaves:
                return True
            waiting += [it for it in self.copies(now) if it not in waiting]
        return False

    def _of_call(self, point: Point, node: ast.Call) -> Made:
        made = Made([*self.copies(point)])
        if made.parts and _returns_its_object(node):
            return made
        for referent in self.called(point):
            if isinstance(referent, str):
                self._of_library(point, node, referent, made)
            elif isinstance(referent.node, FUNCTIONS) and referent.node.name != "__init__":
                made.parts += [Point(it, referent.file) for it in tests_of_returns(referent)]
            else:
                made.leaves.append(
                    Leaf(Origin.EQUAL, referent.node.name if hasattr(referent.node, "name") else "")
                )
        if not made.parts and not made.leaves:
            owner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            made.parts += [point.at(it) for it in (owner, *arguments(node))]
        return made

    def _of_library(self, point: Point, node: ast.Call, name: str, made: Made) -> None:
        origin = known.origin_of(name)
        if name in ("os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault"):
            made.leaves.append(_variable(node.args[0] if node.args else None))
        elif origin is Origin.CLOCK and any(not isinstance(it, ast.Constant) for it in node.args):
            made.parts += [point.at(it) for it in node.args]
        elif origin is not None:
            made.leaves.append(Leaf(origin, name))
        elif name in known.REDUCES or name in known.KINDS:
            made.leaves.append(Leaf(Origin.EQUAL, name))
        elif name in known.LOADERS:
            made.leaves.append(Leaf(Origin.UNKNOWN, name))
        elif name == "builtins.next" and node.args:
            inner = self._iterated(point, node.args[0], ())
            made.parts += inner.parts
            made.leaves += inner.leaves
        elif name not in known.RETURNS_ITS_ARGUMENTS:
            is_method = isinstance(node.func, ast.Attribute) and not _is_of_module(self, point, node)
            owner = [node.func.value] if is_method and isinstance(node.func, ast.Attribute) else []
            made.parts += [point.at(it) for it in (*owner, *arguments(node))]
            if not known.is_pure(name):
                made.leaves.append(Leaf(Origin.UNKNOWN, name))

    def rank_ends(self) -> set[object]:
        """The parameters, attributes and expressions that the program gives to torch as the number of the rank."""
        if self._rank_ends is None:
            self._rank_ends = set()
            found = [end for it in self._rank_arguments() for end in self.ends(it)]
            for end in found:
                node = end.node
                if isinstance(node, Definition) and node.how is How.PARAMETER:
                    self._rank_ends.add(node.node)
                elif isinstance(node, ast.Attribute):
                    owners = self.types(end.at(node.value))
                    self._rank_ends |= {(owner, node.attr) for owner in owners} or {node}
                elif isinstance(node, ast.Subscript):
                    self._rank_ends.add(node)
        return self._rank_ends

    def _rank_arguments(self) -> Iterator[Point]:
        for name, (position, keyword) in known.RANK_ARGUMENTS.items():
            for call, file in self._calls_of[name.rpartition(".")[2]]:
                if name in self.referents(Point(call.func, file)):
                    given = argument(call, position, keyword)
                    if given is not None:
                        yield Point(given, file)

    def walk(self, point: Point, hides: Callable[[Point], bool]) -> Iterator[Point]:
        """Everything that a value is made of, the nearest first: also in constructors, in functions that were given a
        variable to change, and what a loop goes over.

        Args:
            hides: whether what a value is made of does not matter.
        """
        waiting, visited = deque([point]), {point}
        while waiting and len(visited) < _MOST:
            now = waiting.popleft()
            yield now
            if hides(now):
                continue
            for part in (*self.made_of(now).parts, *self._inside(now)):
                if part not in visited:
                    visited.add(part)
                    waiting.append(part)

    def _inside(self, point: Point) -> Iterator[Point]:
        node = point.node
        if isinstance(node, Definition) and node.value is not None:
            if node.how is How.ITERATED:
                yield from self.ends(point.at(node.value))
            elif node.how is How.GIVEN:
                yield from self._changed(point.at(node.value), node.node)
        elif isinstance(node, ast.Call):
            yield from self._kept(point, node)

    def _changed(self, call: Point, given: ast.AST) -> Iterator[Point]:
        """What a variable is after the program's functions that a call gave it to."""
        for function, called, inside in self._entered(call):
            for parameter in (*function.args.posonlyargs, *function.args.args):
                argued = self.argument_of(call, function, parameter)
                if argued is not None and argued.node is given:
                    last = (self.chains(function, called.file).end or {}).get(parameter.arg, frozenset())
                    yield from (Point(it, called.file, inside) for it in last if it.how is not How.PARAMETER)

    def _kept(self, point: Point, call: ast.Call) -> Iterator[Point]:
        """What an object keeps of those that construct it; and what the next element is one of."""
        if "builtins.next" in self.called(point) and call.args:
            yield point.at(call.args[0])
        for function, called, inside in self._entered(point):
            if function.name == "__init__" and function.args.args:
                prefix = f"{function.args.args[0].arg}."
                for key, definitions in (self.chains(function, called.file).end or {}).items():
                    if key.startswith(prefix):
                        yield from (Point(it, called.file, inside) for it in definitions)

    def _entered(self, call: Point) -> Iterator[tuple[Function, Entity, Context]]:
        """The functions of the program that a call enters."""
        depth = call.context.depth if call.context else 0
        node = call.node
        for called in self.called(call) if isinstance(node, ast.Call) and depth < _DEPTH else ():
            if isinstance(called, Entity) and isinstance(called.node, FUNCTIONS):
                assert isinstance(node, ast.Call)
                yield called.node, called, Context(node, call.file, call.context, depth + 1)

    def origins(self, point: Point) -> dict[Leaf, list[Point]]:
        """Where a value comes from, and for each the way from there to it, in the order in which values were made."""
        came: dict[Point, Point | None] = {point: None}
        waiting, found = deque([point]), dict[Leaf, list[Point]]()
        while waiting:
            now = waiting.popleft()
            made = self.made_of(now)
            for leaf in made.leaves:
                if leaf not in found:
                    found[leaf] = _way(came, now)
            for part in made.parts:
                if part not in came:
                    came[part] = now
                    waiting.append(part)
            if len(came) > _MOST:
                found.setdefault(Leaf(Origin.UNKNOWN, "too much to read"), _way(came, now))
                break
        return found


def _way(came: Mapping[Point, Point | None], end: Point) -> list[Point]:
    way, now = [], end
    while now is not None:
        way.append(now)
        now = came[now]  # type: ignore[assignment]
    return way


def name_called(call: ast.Call) -> str:
    """The last part of the name of the function, or of the method, that is called; empty where it has none."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def argument(call: ast.Call, position: int | None, name: str) -> ast.expr | None:
    """What a call gives as one parameter."""
    named = next((keyword.value for keyword in call.keywords if keyword.arg == name), None)
    if named is None and position is not None and position < len(call.args):
        return call.args[position]
    return named


def arguments(call: ast.Call) -> list[ast.expr]:
    """What a call is given that is no place for a value."""
    return [*call.args, *(it.value for it in call.keywords if it.arg not in known.PLACES)]


def returned(function: Function) -> list[ast.expr]:
    """What a function returns or yields."""
    found = (it.value for it in own_nodes(function) if isinstance(it, ast.Return | ast.Yield | ast.YieldFrom))
    return [value for value in found if value is not None]


def tests_of_returns(called: Entity) -> list[ast.expr]:
    """The conditions that decide what a function returns."""
    function = called.node
    if not isinstance(function, FUNCTIONS):
        return []
    returns = [it for it in own_nodes(function) if isinstance(it, ast.Return)]
    if len(returns) < 2:
        return []
    above = (it for end in returns for it in called.file.above(end))
    tests = (
        it.test for it in above if isinstance(it, ast.If | ast.While) and called.file.scopes[it] is function
    )
    return list(dict.fromkeys(tests))


def _operands(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp):
        return [node.elt, *(part for it in node.generators for part in (it.iter, *it.ifs))]
    if isinstance(node, ast.DictComp):
        return [node.key, node.value, *(part for it in node.generators for part in (it.iter, *it.ifs))]
    parts = (it for it in ast.iter_child_nodes(node) if isinstance(it, ast.expr))
    return [it for it in parts if not isinstance(getattr(it, "ctx", None), ast.Store)]


def _returns_its_object(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in known.RETURNS_ITS_OBJECT


def _is_of_module(flow: Flow, point: Point, call: ast.Call) -> bool:
    """Whether the function of a call is one of a module, and no method of a value."""
    assert isinstance(call.func, ast.Attribute)
    base = point.at(call.func.value)
    return bool(flow.referents(base)) and not flow.types(base)


def _variable(key: ast.AST | None) -> Leaf:
    """What an environment variable tells."""
    name = str(key.value) if isinstance(key, ast.Constant) else ""
    if name in launchers.RANK_VARIABLES:
        return Leaf(Origin.RANK, f"os.environ[{name!r}]")
    origin = Origin.EQUAL if name in launchers.EQUAL_VARIABLES else Origin.ENVIRONMENT
    return Leaf(origin, f"os.environ[{name!r}]")


def _reduced(call: ast.Call, name: str) -> list[ast.AST]:
    """The variables that a collective makes equal: its tensor, or those in the list of them."""
    given = argument(call, *known.REDUCES[name])
    return [] if given is None else [given, *(given.elts if isinstance(given, _ONE_OF) else ())]


def _changes(call: ast.Call) -> bool:
    """Whether a method puts what it is given into its object."""
    name = name_called(call)
    return name in known.CHANGES or (name.endswith("_") and not name.startswith("_"))


def _default(function: ast.AST, parameter: ast.AST) -> list[ast.expr]:
    arguments_of = getattr(function, "args", None)
    if not isinstance(arguments_of, ast.arguments):
        return []
    positional = [*arguments_of.posonlyargs, *arguments_of.args]
    pairs = [
        *zip(reversed(positional), reversed(arguments_of.defaults), strict=False),
        *zip(arguments_of.kwonlyargs, arguments_of.kw_defaults, strict=True),
    ]
    return [value for name, value in pairs if name is parameter and value is not None]


def _is_static(function: Function) -> bool:
    return any(dotted(it) == "staticmethod" for it in function.decorator_list)


def _is_container(node: ast.AST | Definition) -> bool:
    return isinstance(node, ast.Dict | ast.Tuple | ast.List)


def _annotated(annotation: ast.expr) -> ast.expr:
    """The class of ``X``, ``X | None`` or ``Optional[X]``."""
    if isinstance(annotation, ast.BinOp):
        return annotation.left
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Name | ast.Attribute):
        return annotation.slice if (dotted(annotation.value) or "").endswith("Optional") else annotation.value
    return annotation


def _scope(definition: Definition) -> Scope:
    assert isinstance(definition.node, (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module))
    return definition.node
