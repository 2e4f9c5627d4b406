"""The questions that other packages ask about the user's program."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ddpdoctor.model import Where
from ddpdoctor.program.conditions import Condition
from ddpdoctor.program.expressions import Expression
from ddpdoctor.program.files import (
    LEAVES,
    LOOPS,
    File,
    Function,
    Loop,
    argument,
    lines,
    modules_of,
    name_of_scope,
    own_nodes,
    parse,
    read,
    stamp,
)
from ddpdoctor.program.flow import Flow
from ddpdoctor.program.handlers import catching
from ddpdoctor.program.identity import Identities
from ddpdoctor.program.index import Entity, Origins, Point, Source, where_of
from ddpdoctor.program.known import NAMED_BY_CLOCK, Origin, is_module
from ddpdoctor.program.loops import Loops
from ddpdoctor.program.ways_out import WayOut

_PROGRAMS: dict[tuple[Path, str], Program] = {}
"""Those that were read, by the working directory and the script as it was named."""


class Program:
    """The files of a script, and what follows from their text.

    Args:
        script: the file that is run; or any file, for a program of what it imports.
        called: the qualified names of what a run called at a line, by file and line.
        texts: what stands in files that differ from what is on disk.
    """

    def __init__(
        self,
        script: str,
        called: Mapping[tuple[str, int], Sequence[str]] | None = None,
        texts: Mapping[str, bytes] | None = None,
    ) -> None:
        own = {path: parse(path, raw) for path, raw in (texts or {}).items()}
        self._stamps = {path: stamp(path) for path in modules_of(script)}
        every = {path: own[path] if path in own else read(path) for path in self._stamps}
        files = {path: file for path, file in every.items() if file is not None}
        self.script = script
        self.files: Mapping[str, File] = files
        self.flow = Flow(files, called or {})
        self.identities = Identities(self.flow)
        self._origins: dict[Point, Origins] = {}

    @staticmethod
    def of(script: str) -> Program:
        """The program of a script, read once; again where a file has changed, or lies elsewhere in a copy."""
        place = Path.cwd(), script
        program = _PROGRAMS.get(place)
        if program is None or any(stamp(path) != it for path, it in program._stamps.items()):
            program = _PROGRAMS[place] = Program(script)
        return program

    @staticmethod
    def holding(where: Where, script: str = "") -> Program:
        """The program that a line is part of: that of the script, or of the line's own file."""
        program = Program.of(script or where.file)
        return program if where.file in program.files else Program.of(where.file)

    @cached_property
    def loops(self) -> Loops:
        """Its loops, and the ways out of them."""
        return Loops(self)

    def file(self, where: Where | None) -> File | None:
        """The file of a line; None where it is none of the program."""
        return self.files.get(where.file) if where is not None else None

    def origins(self, point: Point) -> Origins:
        """Where a value comes from."""
        if point not in self._origins:
            self._origins[point] = self._find_origins(point)
        return self._origins[point]

    def only(self, point: Point, *allowed: Origin) -> bool:
        """Whether nothing else takes part in a value, apart from what is equal: cheaper than all that does."""
        kinds = {*allowed, Origin.EQUAL, Origin.REDUCED}
        if point in self._origins:
            return self._origins[point].kinds <= kinds
        with suppress(RecursionError):
            return self.flow.only(point, kinds)
        return False

    def _find_origins(self, point: Point) -> Origins:
        try:
            found = self.flow.origins(point)
        except RecursionError:
            return Origins((Source(Origin.UNKNOWN, "too deep to read", ()),))
        return Origins(tuple(Source(leaf.origin, leaf.name, _lines_of(way)) for leaf, way in found.items()))

    # Conditions.

    def conditions(self, where: Where | None) -> list[Condition]:
        """What has to be so for a line to be reached once its function is called, the outermost first."""
        file = self.file(where)
        if file is None or where is None or where.line is None:
            return []
        node = next(reversed(file.statements_at(where.line)), None)
        leading = [*file.leading_to(node)] if node else []
        return [
            Condition(Expression(self, file, it.test), holds, file.where(it))
            for it, holds, end in reversed(leading)
            if end is None or isinstance(end, LEAVES) or self.loops.ends_process(file, end)
        ]

    def calls_otherwise(self, condition: Condition) -> Iterator[ast.Call]:
        """The calls that are made where a condition is otherwise, there and in the functions called there."""
        for node in condition.otherwise:
            entered = self.loops.called_in(condition.test.file, node)
            yield from (it for it in own_nodes(node) if isinstance(it, ast.Call))
            yield from (it for scope in entered for it in own_nodes(scope) if isinstance(it, ast.Call))

    def around(self, where: Where) -> Where:
        """The same line, with the name of its function as the text has it."""
        file = self.file(where)
        name = file.qualified_name(file.function_at(where.line)) if file else where.function
        return replace(where, function=name)

    def ways_out(self, where: Where) -> list[WayOut]:
        """The ways out of the loops around a line of its function, the outer loops first."""
        file = self.file(where)
        if file is None or where.line is None:
            return []
        around = self.loops.around(file, where.line)
        return [way for loop in around for way in self.loops.ways_out(file, loop) if way.tests]

    def test_at(self, where: Where | None) -> Expression | None:
        """The condition of the ``if`` or the ``while`` that begins at a line."""
        file = self.file(where)
        statements = file.statements_at(where.line) if file and where else []
        found = (it for it in statements if isinstance(it, ast.If | ast.While) and it.lineno == where.line)  # type: ignore[union-attr]
        statement = next(found, None)
        return Expression(self, file, statement.test) if file and statement else None

    def turns_at(self, where: Where) -> Expression | None:
        """What the ``for`` that begins at a line goes over."""
        file = self.file(where)
        found = file.statements_at(where.line) if file else []
        loop = next((it for it in found if isinstance(it, ast.For) and it.lineno == where.line), None)
        return Expression(self, file, loop.iter) if file and loop else None

    def catching(self, where: Where) -> list[Where]:
        """The lines that may catch an exception of a line, in its function and in those that lead to it."""
        leading = self.loops.leading(where).values()
        return [it for file, here in leading for line in here for it in catching(Where(file.path, line))]

    def callers(self, where: Where) -> list[Where]:
        """The lines of the program that call the function in which a line stands."""
        file = self.file(where)
        function = file.function_at(where.line) if file else None
        if function is None or isinstance(function, ast.Module):
            return []
        return [caller.where(call) for call, caller in self.calls_of(function)]

    def calls_of(self, function: Function) -> list[tuple[ast.Call, File]]:
        """The calls that lead to a function, each with its file."""
        try:
            return self.flow.callers(function)
        except RecursionError:
            return []

    def counted_around(self, where: Where) -> frozenset[tuple[str, str]]:
        """What the innermost loop around a line, or around its only calls, counts: variables and their functions."""
        for at in self._only_calls(where):
            file = self.file(at)
            scope = file.function_at(at.line) if file else None
            around = file.statements_at(at.line) if file else []
            loops = [
                it
                for it in reversed(around)
                if isinstance(it, LOOPS) and it.lineno != where.line and file and file.scopes[it] is scope
            ]
            if loops and scope is not None:
                return frozenset((name_of_scope(scope), name) for name in _counted(loops[0]))
        return frozenset()

    def guard(self, where: Where | None) -> Condition | None:
        """The condition on the rank that a line stands under, in its function."""
        return next((it for it in self.conditions(where) if it.by_rank), None)

    # Calls.

    def every_call(self) -> Iterator[Expression]:
        """The calls of the program, file by file."""
        return (Expression(self, file, call) for file in self.files.values() for call in file.calls)

    def calls_at(self, where: Where | None) -> list[Expression]:
        """The outermost calls of a line."""
        file = self.file(where)
        own = [it for it in file.calls if where and it.lineno == where.line] if file else []
        calls = [Expression(self, file, it) for it in own if file]
        inside = {part for it in calls for part in ast.walk(it.node) if part is not it.node}
        return [it for it in calls if it.node not in inside]

    def called_at(self, where: Where) -> frozenset[str]:
        """The qualified names of all that the calls of a line call."""
        file = self.file(where)
        calls = [Expression(self, file, it) for it in file.calls if it.lineno == where.line] if file else []
        return frozenset(name for call in calls for name in call.called)

    def assigned(self) -> Iterator[tuple[Expression, Expression]]:
        """What the program assigns to attributes and elements, each with the value."""
        for file in self.files.values():
            for node in file.scopes:
                value = node.value if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) else None
                targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
                for target in targets if value is not None else ():
                    if isinstance(target, ast.Attribute | ast.Subscript) and value is not None:
                        yield Expression(self, file, target), Expression(self, file, value)

    def modules(self) -> Iterator[tuple[File, ast.ClassDef]]:
        """The classes that derive from a module of torch, or from one of a library that is built on it."""
        for file in self.files.values():
            for node in file.classes:
                if any(map(is_module, self.flow.library_bases(Entity(node, file)))):
                    yield file, node

    def calls(self, *names: str) -> list[Where]:
        """The lines that call functions of these qualified names."""
        last = {name.rpartition(".")[2] for name in names}
        found = []
        for file in self.files.values():
            for call in file.calls:
                it = Expression(self, file, call)
                named = it.inner(call.func).names if getattr(call.func, "id", "") in last else frozenset()
                if not it.called.union(named).isdisjoint(names):
                    found.append(file.where(call))
        return found

    def mentions(self, name: str) -> bool:
        """Whether anything in the program is spelled as this function of a library, called or not."""
        nodes = (node for file in self.files.values() for node in file.scopes)
        return any(
            name in (getattr(it, field, None) for field in ("id", "attr", "name", "value")) for it in nodes
        )

    def unread_modules(self) -> frozenset[str]:
        """The modules that the program imports and that are none of its files."""
        return frozenset(name for file in self.files.values() for name in self.flow.unread_imports(file))

    def is_ahead(self, where: Where, other: Where) -> bool:
        """Whether a line stands in front of another one of the same function."""
        file = self.file(other)
        if file is None or where.file != other.file or (where.line or 0) >= (other.line or 0):
            return False
        return file.function_at(where.line) is file.function_at(other.line)

    def contexts(self, where: Where) -> tuple[list[Expression], list[Expression]]:
        """The context managers of a line's function: those that it is run under, the innermost first, and all."""
        file = self.file(where)
        scope = file.function_at(where.line) if file else None
        if file is None or scope is None:
            return [], []
        blocks = [it for it in file.scopes if isinstance(it, ast.With) and file.scopes[it] is scope]
        blocks.sort(key=lambda it: -it.lineno)
        entered = [(it, Expression(self, file, item.context_expr)) for it in blocks for item in it.items]
        return [context for it, context in entered if where.line in lines(it)], [it for _, it in entered]

    def is_given_to(self, value: Expression, names: Collection[str], parameter: str) -> bool:
        """Whether calls of these functions are given the very value as their first parameter."""
        calls = (it for it in self.every_call() if not it.called.isdisjoint(names))
        given = (it.argument(0, parameter) for it in calls)
        nodes = {it.node for argued in given if argued for it in argued.values if it}
        return any(it.node in nodes for it in value.values if it)

    def conditions_leading_to(self, where: Where) -> list[Condition]:
        """What has to be so for a line to be reached, also in what alone leads to it; the innermost first."""
        return [it for at in self._only_calls(where) for it in reversed(self.conditions(at))]

    def _only_calls(self, where: Where) -> Iterator[Where]:
        """A line, the call that alone leads to it, the one that alone leads to that, and so on."""
        visited: set[Where] = set()
        calls = [where]
        while len(calls) == 1 and calls[0] not in visited:
            visited.add(calls[0])
            yield calls[0]
            calls = self.callers(calls[0])

    def given_at(self, where: Where) -> Origins:
        """What the calls of a line, and the objects whose methods they are, are made of."""
        file, sources = self.file(where), dict[Source, None]()
        for call in file.calls if file else ():
            if file is None or where.line not in lines(call):
                continue
            owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            for given in (*owner, *call.args, *(it.value for it in call.keywords)):
                sources |= dict.fromkeys(self.origins(Point(given, file)).sources)
            for name in Expression(self, file, call).called & NAMED_BY_CLOCK.keys():
                if argument(call, *NAMED_BY_CLOCK[name]) is None:
                    sources[Source(Origin.CLOCK, name, (file.where(call),))] = None
        return Origins(tuple(sources))


def _counted(loop: Loop) -> set[str]:
    """The variables that a loop changes from turn to turn, by its head or in its body."""
    if not isinstance(loop, ast.While):
        return {it.id for it in ast.walk(loop.target) if isinstance(it, ast.Name)}
    changed = [it.target for it in ast.walk(loop) if isinstance(it, ast.AugAssign)]
    tested = {it.id for it in ast.walk(loop.test) if isinstance(it, ast.Name)}
    return tested & {it.id for it in changed if isinstance(it, ast.Name)}


def _lines_of(way: Sequence[Point]) -> tuple[Where, ...]:
    """The lines of a way, each once where it goes on in the same."""
    places: list[Where] = []
    for point in way:
        if isinstance(getattr(point.node, "node", point.node), ast.expr | ast.stmt | ast.arg | ast.alias):
            where = where_of(point)
            if not places or places[-1] != where:
                places.append(where)
    return tuple(places)


__all__ = ["Condition", "Entity", "Expression", "Origin", "Origins", "Program", "Source"]
