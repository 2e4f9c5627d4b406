"""The questions that other packages ask about the user's program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property

from ddpdoctor.model import Where
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.expressions import Condition, Exit, Expression, Origins, Source, where_of
from ddpdoctor.program.files import (
    LOOPS,
    File,
    Function,
    Loop,
    lines,
    modules_of,
    name_of_scope,
    own_nodes,
    parse,
    read,
)
from ddpdoctor.program.flow import Flow, tests_of_returns
from ddpdoctor.program.handlers import catching
from ddpdoctor.program.known import NAMED_BY_CLOCK, Origin, is_module
from ddpdoctor.program.loops import Loops
from ddpdoctor.program.points import Entity, Point
from ddpdoctor.program.signatures import argument, arguments


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
        every = {path: own[path] if path in own else read(path) for path in modules_of(script)}
        files = {path: file for path, file in every.items() if file is not None}
        self.script = script
        self.files: Mapping[str, File] = files
        self.flow = Flow(files, called or {})
        self._origins: dict[Point, Origins] = {}

    @staticmethod
    def of(script: str) -> Program:
        """The program of a script, read once."""
        return _program(script)

    @staticmethod
    def holding(where: Where, script: str = "") -> Program:
        """The program that a line is part of: that of the script, or of the line's own file."""
        program = Program.of(script or where.file)
        return program if where.file in program.files else Program.of(where.file)

    @cached_property
    def loops(self) -> Loops:
        """Its loops, and the ways out of them."""
        return Loops(self.flow)

    def file(self, where: Where | None) -> File | None:
        """The file of a line; None where it is none of the program."""
        return self.files.get(where.file) if where is not None else None

    def origins(self, expression: Expression) -> Origins:
        """Where the value of an expression comes from."""
        point = Point(expression.node, expression.file, expression.context)
        if point not in self._origins:
            self._origins[point] = self._find_origins(point)
        return self._origins[point]

    def _find_origins(self, point: Point) -> Origins:
        try:
            found = self.flow.origins(point)
        except RecursionError:
            return Origins((Source(Origin.UNKNOWN, "too deep to read", ()),))
        return Origins(tuple(Source(leaf.origin, leaf.name, _lines_of(way)) for leaf, way in found.items()))

    def values(self, expression: Expression) -> list[Expression | None]:
        """The expressions of which this one is a copy; None for each that is no expression, as a loop's element is."""
        ends = self.flow.ends(Point(expression.node, expression.file, expression.context))
        return [
            Expression(self, end.file, end.node, end.context) if isinstance(end.node, ast.expr) else None
            for end in ends
        ]

    def made_of(self, expression: Expression, hides: Callable[[Expression], bool]) -> Iterator[Expression]:
        """The expressions that a value is made of; a call that was given a variable to change is one."""

        def shown(point: Point) -> Expression | None:
            node = point.node
            if isinstance(node, Definition):
                node = node.value if node.how in (How.GIVEN, How.CHANGED) else None  # type: ignore[assignment]
            return Expression(self, point.file, node, point.context) if isinstance(node, ast.expr) else None

        def is_hidden(point: Point) -> bool:
            it = shown(point) if isinstance(point.node, ast.expr) else None
            return it is not None and hides(it)

        start = Point(expression.node, expression.file, expression.context)
        try:
            for point in self.flow.walk(start, is_hidden):
                if (it := shown(point)) is not None:
                    yield it
        except RecursionError:
            return

    def kinds_without(self, expression: Expression, hides: Callable[[Expression], bool]) -> frozenset[Origin]:
        """The kinds of origins of a value, without what is only made into an expression that ``hides`` is true of."""

        def is_hidden(point: Point) -> bool:
            node = point.node
            return isinstance(node, ast.expr) and hides(Expression(self, point.file, node, point.context))

        start = Point(expression.node, expression.file, expression.context)
        with suppress(RecursionError):
            return frozenset(leaf.origin for leaf in self.flow.origins(start, is_hidden))
        return frozenset({Origin.UNKNOWN})

    def names(self, expression: Expression) -> frozenset[str]:
        """The qualified names of what an expression may be."""
        with suppress(RecursionError):
            referents = self.flow.referents(Point(expression.node, expression.file, expression.context))
            return frozenset(it if isinstance(it, str) else name_of_scope(it.node) for it in referents)
        return frozenset()

    # Conditions.

    def conditions(self, where: Where | None) -> list[Condition]:
        """What has to be so for a line to be reached once its function is called, the outermost first."""
        file = self.file(where)
        if file is None or where is None or where.line is None:
            return []
        scope = file.function_at(where.line)
        return list(self._in_front(file, scope.body, where.line))

    def _in_front(self, file: File, block: Sequence[ast.stmt], line: int) -> Iterator[Condition]:
        for statement in block:
            if line in lines(statement):
                yield from self._around(file, statement, line)
                return
            if line < statement.lineno:
                return
            if isinstance(statement, ast.If):
                for body, holds in ((statement.body, False), (statement.orelse, True)):
                    if body and self._leaves(file, body[-1]):
                        yield self._condition(file, statement, holds=holds)

    def _around(self, file: File, statement: ast.stmt, line: int) -> Iterator[Condition]:
        for name, block in ast.iter_fields(statement):
            inner = block if isinstance(block, list) else []
            if name in ("handlers", "cases"):
                inner = [it for handler in inner for it in handler.body]
            if any(isinstance(it, ast.stmt) and line in lines(it) for it in inner):
                if isinstance(statement, ast.If | ast.While) and name in ("body", "orelse"):
                    yield self._condition(file, statement, holds=name == "body")
                yield from self._in_front(file, inner, line)

    def _condition(self, file: File, statement: ast.If | ast.While, *, holds: bool) -> Condition:
        return Condition(Expression(self, file, statement.test), holds, file.where(statement))

    def calls_otherwise(self, condition: Condition) -> Iterator[ast.Call]:
        """The calls that are made where a condition is otherwise, there and in the functions called there."""
        for node in self._otherwise(condition):
            entered = self.loops.called_in(condition.test.file, node)
            yield from (it for it in own_nodes(node) if isinstance(it, ast.Call))
            yield from (it for scope in entered for it in own_nodes(scope) if isinstance(it, ast.Call))

    def kept_apart(self, condition: Condition) -> list[Where]:
        """The lines at which begins what is run where a condition is otherwise."""
        return [condition.test.file.where(it) for it in self._otherwise(condition)[:1]]

    def _otherwise(self, condition: Condition) -> list[ast.stmt]:
        found = condition.test.file.statements_at(condition.at.line)
        tests = (getattr(it, "test", None) for it in found)
        own = (
            it
            for it, test in zip(found, tests, strict=True)
            if isinstance(it, ast.If) and test is condition.test.node
        )
        return [node for it in own for node in (it.orelse if condition.holds else it.body)]

    def _leaves(self, file: File, statement: ast.stmt) -> bool:
        """Whether nothing behind a statement of its block is run."""
        leaves = isinstance(statement, ast.Return | ast.Continue | ast.Break | ast.Raise)
        return leaves or self.loops.ends_process(file, statement)

    def around(self, where: Where) -> Where:
        """The same line, with the name of its function as the text has it."""
        file = self.file(where)
        name = file.qualified_name(file.function_at(where.line)) if file else where.function
        return replace(where, function=name)

    def ways_out(self, where: Where) -> list[Exit]:
        """The ways out of the loops around a line of its function, the outer loops first."""
        file = self.file(where)
        if file is None or where.line is None:
            return []
        around = self.loops.around(file, where.line)
        return [
            Exit(self, way, loop) for loop in around for way in self.loops.ways_out(file, loop) if way.tests
        ]

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
        found = self.calls_of(function)
        return [caller.where(call) for call, caller in found]

    def calls_of(self, function: Function) -> list[tuple[ast.Call, File]]:
        """The calls that lead to a function, each with its file."""
        try:
            return self.flow.callers(function)
        except RecursionError:
            return []

    def counted_around(self, where: Where) -> frozenset[tuple[str, str]]:
        """What the innermost loop around a line counts, or one around the calls that alone lead to it: the variables,
        each with its function."""
        visited: set[Where] = set()
        calls = [where]
        while len(calls) == 1 and calls[0] not in visited:
            at = calls[0]
            visited.add(at)
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
            calls = self.callers(at)
        return frozenset()

    def guard(self, where: Where | None) -> Condition | None:
        """The condition on the rank that a line stands under, in its function."""
        return next((it for it in self.conditions(where) if it.by_rank), None)

    def guarded_call(self, where: Where | None) -> Where | None:
        """The call under a condition on the rank that leads to a line which itself is under none.

        None where the line is under one, and where several such calls lead to it, or none.
        """
        visited: set[tuple[str, str | None]] = set()
        while where is not None and (where.file, where.function) not in visited:
            if self.guard(where):
                return None
            visited.add((where.file, where.function))
            calls = self.callers(where)
            guarded = [call for call in calls if self.guard(call)]
            if len(guarded) == 1:
                return guarded[0]
            if guarded or len(calls) != 1:
                return None
            where = calls[0]
        return None

    def is_for_some_ranks(self, where: Where | None) -> bool:
        """Whether a line stands under a condition on the rank, or is only led to by a call that does."""
        return self.guard(where) is not None or self.guarded_call(where) is not None

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
        return frozenset(name for call in calls for name in self.called(call))

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

    def classes(self, expression: Expression) -> frozenset[str]:
        """The classes of libraries that a value has, or whose subclass; of what a library gave, the function."""
        types = self.flow.types(Point(expression.node, expression.file, expression.context))
        own = (self.flow.library_bases(it) for it in types if isinstance(it, Entity))
        return frozenset(it for it in types if isinstance(it, str)).union(*own)

    def calls(self, *names: str) -> list[Where]:
        """The lines that call functions of these qualified names."""
        last = {name.rpartition(".")[2] for name in names}
        found = []
        for file in self.files.values():
            for call in file.calls:
                if self.called(Expression(self, file, call)).intersection(names) or (
                    not last.isdisjoint({getattr(call.func, "id", "")})
                    and self.names(Expression(self, file, call.func)).intersection(names)
                ):
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

    def called(self, call: Expression) -> frozenset[str]:
        """The qualified names of what a call may call; of an object ``Class.__call__``."""
        with suppress(RecursionError):
            found = self.flow.called(Point(call.node, call.file, call.context))
            return frozenset(it if isinstance(it, str) else name_of_scope(it.node) for it in found)
        return frozenset()

    def choices_in(self, call: Expression) -> Iterator[Expression]:
        """The conditions that decide what the functions of a call return."""
        for called in self.flow.called(Point(call.node, call.file, call.context)):
            if isinstance(called, Entity):
                yield from (Expression(self, called.file, test) for test in tests_of_returns(called))

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
        nodes = {it.node for argued in given if argued for it in self.values(argued) if it}
        return any(it.node in nodes for it in self.values(value) if it)

    def pieces(self, value: Expression) -> Iterator[Expression]:
        """See :meth:`Expression.pieces`."""
        waiting = [Point(value.node, value.file, value.context)]
        visited = set(waiting)
        for point in waiting:  # which grows
            parts = _put_together(point.node)
            ends = [point] if parts or not isinstance(point.node, ast.Name) else self.flow.ends(point)
            inner = [end.at(it) for end in ends for it in _put_together(end.node)]
            waiting += [it for it in dict.fromkeys(inner) if it not in visited]
            visited.update(inner)
            if not inner and isinstance(point.node, ast.expr):
                yield Expression(self, point.file, point.node, point.context)

    def conditions_leading_to(self, where: Where) -> list[Condition]:
        """What has to be so for a line to be reached, also in what alone leads to it; the innermost first."""
        found: list[Condition] = []
        visited: set[Where] = set()
        calls = [where]
        while len(calls) == 1 and calls[0] not in visited:
            visited.add(calls[0])
            found += reversed(self.conditions(calls[0]))
            calls = self.callers(calls[0])
        return found

    def given_at(self, where: Where) -> Origins:
        """What the calls of a line, and the objects whose methods they are, are made of."""
        file, sources = self.file(where), dict[Source, None]()
        for call in file.calls if file else ():
            if file is None or where.line not in lines(call):
                continue
            owner = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            for given in (*owner, *call.args, *(it.value for it in call.keywords)):
                sources |= dict.fromkeys(self.origins(Expression(self, file, given)).sources)
            for name in self.called(Expression(self, file, call)) & NAMED_BY_CLOCK.keys():
                if argument(call, *NAMED_BY_CLOCK[name]) is None:
                    sources[Source(Origin.CLOCK, name, (file.where(call),))] = None
        return Origins(tuple(sources))

    def expression_at(self, where: Where, text: str | None = None) -> Expression | None:
        """The expression with this text on a line; the first one on it without.

        Args:
            text: as :func:`ast.unparse` writes it.
        """
        file = self.file(where)
        nodes = file.scopes if file else ()
        found = (
            node
            for node in nodes
            if isinstance(node, ast.expr)
            and node.lineno == where.line
            and (text is None or ast.unparse(node) == text)
        )
        node = min(found, key=lambda it: it.col_offset, default=None)
        return Expression(self, file, node) if file is not None and node is not None else None


@cache
def _program(script: str) -> Program:
    return Program(script)


def _counted(loop: Loop) -> set[str]:
    """The variables that a loop changes from turn to turn, by its head or in its body."""
    if not isinstance(loop, ast.While):
        return {it.id for it in ast.walk(loop.target) if isinstance(it, ast.Name)}
    changed = {
        it.target.id
        for it in ast.walk(loop)
        if isinstance(it, ast.AugAssign) and isinstance(it.target, ast.Name)
    }
    return changed & {it.id for it in ast.walk(loop.test) if isinstance(it, ast.Name)}


def _put_together(node: object) -> list[ast.expr]:
    """What a text, a tuple or a dictionary is put together from."""
    match node:
        case ast.JoinedStr():
            return [it.value for it in node.values if isinstance(it, ast.FormattedValue)]
        case ast.Tuple() | ast.List():
            return node.elts
        case ast.Dict():
            return node.values
        case ast.BinOp(left=ast.Constant(value=str()) | ast.JoinedStr()):
            return [node.left, node.right]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()))):
            return arguments(node)
        case _:
            return []


def _lines_of(way: Sequence[Point]) -> tuple[Where, ...]:
    """The lines of a way, each once where it goes on in the same."""
    places: list[Where] = []
    for point in way:
        if isinstance(getattr(point.node, "node", point.node), ast.expr | ast.stmt | ast.arg | ast.alias):
            where = where_of(point)
            if not places or places[-1] != where:
                places.append(where)
    return tuple(places)


__all__ = ["Condition", "Entity", "Exit", "Expression", "Origin", "Origins", "Program", "Source"]
