"""Values of a program as points of a graph, and what it defines by name: its functions, classes, attributes, imports,
and the definitions of each scope."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

from ddpdoctor.model import Where
from ddpdoctor.program import known
from ddpdoctor.program.chains import Chains, Definition, How
from ddpdoctor.program.files import FUNCTIONS, File, Function, Scope, held_by, name_called
from ddpdoctor.program.known import Origin


class Context(NamedTuple):
    """The call through which a function was entered. A tuple, as points are, for millions of them are compared."""

    call: ast.Call
    file: File
    outer: Context | None
    depth: int = 1


class Point(NamedTuple):
    """A value: an expression, or a definition of a variable."""

    node: ast.AST | Definition
    file: File
    context: Context | None = None

    def at(self, node: ast.AST | Definition) -> Point:
        """Another value of the same function."""
        return Point(node, self.file, self.context)


class Entity(NamedTuple):
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


@dataclass(frozen=True)
class Source:
    """One of the places where a value comes from."""

    origin: Origin
    name: str
    """What gives it: the qualified name of a function, an environment variable, a parameter."""
    path: tuple[Where, ...]
    """The lines from there to the value."""


@dataclass(frozen=True)
class Origins:
    """Everything that a value comes from."""

    sources: tuple[Source, ...]

    @property
    def kinds(self) -> frozenset[Origin]:
        """The kinds of origins."""
        return frozenset(source.origin for source in self.sources)

    @property
    def known(self) -> bool:
        """Whether all code that makes the value was read; a value of which it was not is no reason for a finding."""
        return Origin.UNKNOWN not in self.kinds

    @property
    def differs(self) -> bool:
        """Whether ranks have values of their own, which is certain: all is known, and a part differs."""
        return self.known and any(kind.differs for kind in self.kinds)

    @property
    def may_be_none(self) -> bool:
        """Whether ``None`` is written somewhere on the way."""
        return any(it.origin is Origin.EQUAL and it.name == "None" for it in self.sources)

    def of(self, origin: Origin) -> Source | None:
        """The source with the shortest path among those of one kind."""
        found = (it for it in self.sources if it.origin is origin)
        return min(found, key=lambda it: len(it.path), default=None)


Question = TypeVar("Question", bound=Callable[..., Any])


def answered_once(none: object, *, whole: bool = False) -> Callable[[Question], Question]:
    """A question about a point whose answer is kept, which is ``none`` where it asks for itself; with ``whole`` only
    where no answer that it rests on was cut off so."""

    def keep(find: Question) -> Question:
        @wraps(find)
        def answer(index: Index, point: Point) -> Any:
            answers, under_way, key = index._answers[find], index._under_way, (find, point)
            if point in answers:
                return answers[point]
            if key in under_way:
                index._cuts += 1
                return none
            under_way.add(key)
            cuts = index._cuts
            try:
                found = find(index, point)
            finally:
                under_way.discard(key)
            if not whole or not under_way or index._cuts == cuts:
                answers[point] = found
            return found

        return answer  # type: ignore[return-value]

    return keep


class Index:
    """The definitions of one program, of its files by path."""

    def __init__(self, files: Mapping[str, File]) -> None:
        self.files = files
        self._chains: dict[Scope, Chains] = {}
        self._modules: dict[tuple[str, int, str], File | None] = {}
        self._calls_of: defaultdict[str, list[tuple[ast.Call, File]]] = defaultdict(list)
        self._stores: defaultdict[str, list[tuple[ast.Attribute, File]]] = defaultdict(list)
        self._filled: defaultdict[str, list[tuple[ast.Attribute, ast.expr, File]]] = defaultdict(list)
        """Attributes that hold containers, each with what changes them there."""
        self._filled_names: defaultdict[tuple[str, str], list[Scope]] = defaultdict(list)
        """The functions that put something into what a variable of the module holds."""
        self._named: defaultdict[str, list[Entity]] = defaultdict(list)
        self._globals: defaultdict[tuple[str, str], list[Scope]] = defaultdict(list)
        self._sets: dict[ast.ClassDef, dict[str, set[str]]] = {}
        self._answers: defaultdict[object, dict[Any, Any]] = defaultdict(dict)
        """What is known of points and functions, by the question."""
        self._under_way: set[object] = set()
        self._cuts = 0
        """How often a question had no answer because it was under way: what was found out meanwhile may lack some."""
        for file in files.values():
            for call in file.calls:
                self._calls_of[name_called(call)].append((call, file))
                if isinstance(call.func, ast.Attribute) and puts_in(call):
                    owner = held_by(call.func.value)
                    self._fills(owner, owner, file)
            for target in file.elements:
                self._fills(target.value, target, file)
            for store in file.stores:
                self._stores[store.attr].append((store, file))
            for definition in (*file.functions, *file.classes):
                self._named[definition.name].append(Entity(definition, file))
            for node in file.scopes:
                if isinstance(node, ast.Global):
                    for name in node.names:
                        self._globals[file.path, name].append(file.scopes[node])

    def _fills(self, container: ast.expr, by: ast.expr, file: File) -> None:
        if isinstance(container, ast.Attribute):
            self._filled[container.attr].append((container, by, file))
        elif isinstance(container, ast.Name) and isinstance(file.scopes[container], FUNCTIONS):
            scopes = self._filled_names[file.path, container.id]
            if file.scopes[container] not in scopes:
                scopes.append(file.scopes[container])

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
            methods = {it.name: [*ast.walk(it)] for it in definition.body if isinstance(it, FUNCTIONS)}
            sets = {
                name: {
                    it.attr for it in parts if isinstance(it, ast.Attribute) and isinstance(it.ctx, ast.Store)
                }
                for name, parts in methods.items()
            }
            calls = {
                name: {name_called(it) for it in parts if isinstance(it, ast.Call)} & methods.keys()
                for name, parts in methods.items()
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

    def _outer(self, name: str, scope: Scope, file: File) -> list[Point]:
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
                found += self._filled_in(name, file) if isinstance(around, ast.Module) else []
                return [Point(it, file) for it in found]
        return []

    def _filled_in(self, name: str, file: File) -> list[Definition]:
        """How functions change what a variable of the module holds, which they do not set."""
        found = []
        for function in self._filled_names.get((file.path, name), ()):
            changes = self.chains(function, file).all.get(name, {})
            if all(it.how in (How.GIVEN, How.CHANGED) for it in changes):
                calls = ((it, it.value) for it in changes)
                found += [
                    it
                    for it, call in calls
                    if it.how is How.CHANGED or (isinstance(call, ast.Call) and puts_in(call))
                ]
        return found

    def _of_module(self, name: str, file: File) -> list[Point]:
        return self._outer(name, file.tree, file)

    # Imports.

    def _imported(self, file: File, definition: Definition) -> list[Point]:
        """The definitions that an import of something of the program stands for."""
        alias, statement = definition.node, file.parents[definition.node]
        if not isinstance(alias, ast.alias) or not isinstance(statement, ast.ImportFrom):
            return []
        module = self._module(file, statement.level, statement.module or "")
        return self._of_module(alias.name, module) if module else []

    def _module(self, file: File, level: int, name: str) -> File | None:
        """The file of the program that an import in another means."""
        key = file.path, level, name
        if key not in self._modules:
            self._modules[key] = self._find_module(Path(file.path), level, name)
        return self._modules[key]

    def _find_module(self, path: Path, level: int, name: str) -> File | None:
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


def puts_in(call: ast.Call) -> bool:
    """Whether it is a method that puts something into its container."""
    return isinstance(call.func, ast.Attribute) and call.func.attr in known.CHANGES


def scope_of(definition: Definition) -> Scope:
    """The scope that a definition stands for which is set elsewhere."""
    assert isinstance(definition.node, (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.Module))
    return definition.node


def where_of(point: Point) -> Where:
    """The line of a value."""
    node = point.node.node if isinstance(point.node, Definition) else point.node
    assert isinstance(node, ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.alias)
    return point.file.where(node)
