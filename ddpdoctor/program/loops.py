"""The loops of a program and of the functions that they call: which lines stand in one, and the ways out.

A way out is what ends a loop, or a function, before its end: a ``break``, a ``return``, an exit of the process, or the
condition of a ``while``. Exceptions are none, but for :class:`SystemExit`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ddpdoctor.model import Where
from ddpdoctor.program.files import FUNCTIONS, LOOPS, TRIES, File, Function, Loop, dotted, lines, own_nodes
from ddpdoctor.program.index import Entity, Point
from ddpdoctor.program.known import ENDS
from ddpdoctor.program.ways_out import WayOut

if TYPE_CHECKING:
    from ddpdoctor.program.program import Program

_Home = Function | ast.Module
"""What has lines of its own: a function, or a module."""


class Loops:
    """The loops of one program.

    Lines that the program does not have are in no loop, and behind all of them if they are a module's own.
    """

    def __init__(self, program: Program) -> None:
        self._program, self._flow = program, program.flow
        self._leads: dict[tuple[str, int], dict[_Home, tuple[File, list[int]]]] = {}
        self._called: dict[ast.AST, set[ast.AST]] = {}

    # Which lines lead to a line.

    def _file(self, where: Where | None) -> File | None:
        known = where is not None and where.line is not None
        return self._flow.files.get(where.file) if where is not None and known else None

    def _home(self, where: Where) -> _Home | None:
        file = self._file(where)
        return file.function_at(where.line) if file else None

    def leading(self, where: Where) -> dict[_Home, tuple[File, list[int]]]:
        """The functions that lead to a line, its own first, and the lines by which they do."""
        file = self._file(where)
        if file is None or where.line is None:
            return {}
        key = file.path, where.line
        if key not in self._leads:
            found: dict[_Home, tuple[File, list[int]]] = {file.function_at(where.line): (file, [where.line])}
            for home in (waiting := list(found)):  # which grows
                for call, caller in self._callers(home):
                    around = caller.function_at(call.lineno)
                    if around not in found:
                        found[around] = (caller, [])
                        waiting.append(around)
                    if around is not next(iter(found)):
                        found[around][1].append(call.lineno)
            self._leads[key] = found
        return self._leads[key]

    def _callers(self, home: _Home) -> list[tuple[ast.Call, File]]:
        with suppress(RecursionError):
            return [] if isinstance(home, ast.Module) else self._flow.callers(home)
        return []

    def _lines_in(self, home: _Home | None, where: Where | None) -> list[int]:
        """The lines of a function that lead to a line, or this itself."""
        found = self.leading(where).get(home) if where is not None and home is not None else None
        return found[1] if found else []

    # Which lines stand in one loop.

    def around(self, file: File, line: int) -> list[Loop]:
        """The loops of its function that a line stands in, the outer ones first."""
        home = file.function_at(line)
        found = (it for it in file.statements_at(line) if isinstance(it, LOOPS))
        return [loop for loop in found if file.scopes[loop] is home]

    def share_a_loop(self, inside: Where, other: Where) -> bool:
        """Whether a line stands in one of the loops around another one, which may be in functions that it calls."""
        file = self._file(other)
        if file is None or self._file(inside) is None:
            return False
        here = self._lines_in(self._home(other), inside)
        return any(other.line in lines(loop) for line in here for loop in self.around(file, line))

    def is_repeated_with(self, inside: Where, other: Where) -> bool:
        """Whether each turn of the loops around a line may come to another, where one function leads to both."""
        theirs = self.leading(other)
        for home, (file, here) in self.leading(inside).items():
            if home in theirs:
                there, loops = theirs[home][1], [self.around(file, each) for each in here]
                return any(all(line in lines(it) for it in around) for around in loops for line in there)
        return False

    def is_in_loop_at(self, loop: Where | None, other: Where | None) -> bool:
        """Whether a line stands in the loop that begins at another one."""
        file = self._file(other)
        if loop is None or other is None or file is None or other.line is None or loop.file != other.file:
            return False
        return any(it.lineno == loop.line for it in self.around(file, other.line))

    def is_between(self, line: Where | None, first: Where | None, last: Where | None) -> bool | None:
        """Whether a line stands behind one and ahead of another, where they or what leads to them are in one function.

        None of a line in a function that is called there, and elsewhere as well.
        """
        if line is None or last is None:
            return False
        ends = self.leading(last)
        for home, (_, here) in self.leading(line).items():
            if home in ends:
                begin, end = min(self._lines_in(home, first), default=0), min(ends[home][1])
                inside = {begin <= each < end for each in here}
                return None if len(inside) > 1 else inside.pop()
        return False

    # Who has left a loop.

    def is_behind(self, inside: Where | None, other: Where | None) -> bool:
        """Whether a line is behind the loops around another one, so that who has come there has left them."""
        if inside is None or other is None:
            return False
        if self._file(inside) is None or self._file(other) is None:
            return bool(inside.line and other.line) and other.function == "<module>" != inside.function
        home, here = self._home(other), self._lines_in(self._home(other), inside)
        is_caller = home is not self._home(inside)
        if self.share_a_loop(inside, other) or (is_caller and not (here and max(here) <= (other.line or 0))):
            return False
        # Who comes there again and again leaves these loops each time: by a decision only where there is one.
        again = self._is_repeated(other)
        return any(self.ways_out(file, loop) or not again for file, loop in self._left(inside, other))

    def _is_repeated(self, where: Where) -> bool:
        """Whether a loop leads to the function of a line."""
        (_, *above) = self.leading(where).values()
        return any(self.around(file, line) for file, calls in above for line in calls)

    def _left(self, inside: Where, other: Where | None) -> list[tuple[File, Loop]]:
        """The loops that lead to a line and do not stand around the other, the outer ones first."""
        own, home = self._home(inside), self._home(other) if other else None
        on_the_way = [
            (file, line)
            for function, (file, here) in self.leading(inside).items()
            if function is own or (home is not None and self._leads_to(home, function, file))
            for line in here
        ]
        loops = [(file, loop) for file, line in reversed(on_the_way) for loop in self.around(file, line)]
        return [
            (file, loop)
            for file, loop in dict.fromkeys(loops)
            if not (other and other.file == file.path and other.line in lines(loop))
        ]

    def _leads_to(self, home: _Home, function: _Home, file: File) -> bool:
        if home is function or isinstance(function, ast.Module):
            return home is function
        return home in self.leading(Where(file.path, function.body[0].lineno, function.name))

    def exit_branch(self, inside: Where | None, other: Where | None) -> Where | None:
        """The branch by which the loops around a line, ``inside``, are left for another line; None where it is not the
        only one. The other is where a rank was when it had left; in a function that calls the loop's, for instance."""
        if inside is None or self._file(inside) is None:
            return None
        ways = (self.ways_out(file, loop) for file, loop in self._left(inside, other))
        # An inner one is left each time that the outer one goes on.
        return _only_one(way.at for way in next(filter(None, ways), []))

    # Ways out.

    def ways_out(self, file: File, loop: Loop) -> list[WayOut]:
        """Those of a loop, in the order of their lines."""
        found = []
        if isinstance(loop, ast.While) and not isinstance(loop.test, ast.Constant):
            found.append(WayOut(self._program, file, loop, ((loop, False),), loop))
        for statement in _statements(loop.body):
            if self._leaves(file, statement, loop):
                found.append(self._way(file, statement, loop))
        return found

    def _way(self, file: File, statement: ast.stmt, around: ast.AST) -> WayOut:
        return WayOut(self._program, file, statement, tuple(_tests(file, statement, around)), around)

    def _leaves(self, file: File, statement: ast.stmt, loop: Loop) -> bool:
        if isinstance(statement, ast.Break):
            return _loop_of(file, statement) is loop
        return isinstance(statement, ast.Return) or self.ends_process(file, statement)

    def ends_process(self, file: File, statement: ast.stmt) -> bool:
        """Whether a statement ends the process as its author wants it to."""
        value = getattr(statement, "exc" if isinstance(statement, ast.Raise) else "value", None)
        called = value.func if isinstance(value, ast.Call) else value
        ends = {"builtins.SystemExit"} if isinstance(statement, ast.Raise) else ENDS
        if not (isinstance(called, ast.Name | ast.Attribute) and isinstance(statement, ast.Raise | ast.Expr)):
            return False
        own = {alias.asname: alias.name for it in file.imports for alias in it.names if alias.asname}
        name = (dotted(called) or "").rpartition(".")[2]
        if own.get(name, name) not in {it.rpartition(".")[2] for it in ends}:
            return False
        with suppress(RecursionError):
            return not ends.isdisjoint(self._flow.referents(Point(called, file)))
        return False

    def skip_branch(self, before: Where | None, behind: Where | None) -> Where | None:
        """The branch by which a line of a function is left out that stands behind another; None where it is not one."""
        file = self._file(behind)
        if file is None or before is None or behind is None or before.file != behind.file:
            return None
        first, last = before.line or 0, behind.line or 0
        home = file.function_at(last)
        if file.function_at(first) is not home:
            return None
        around = [it for it in file.statements_at(last) if isinstance(it, ast.If) and first < it.lineno]
        ways = [file.where(it) for it in around if it.lineno < last]
        ways += [it.at for it in self._past(file, home, last) if first < it.tests[-1][0].lineno]
        if not ways:
            return _only_one(file.where(it) for it in self._swallowing(file, last))
        return _only_one(ways)

    def _past(self, file: File, home: _Home, line: int) -> Iterator[WayOut]:
        """What leads past a line from above it, in its function: the end of a turn, or of the function."""
        around = {*self.around(file, line)}
        for statement in _statements(home.body):
            turns = isinstance(statement, ast.Continue) and _loop_of(file, statement) in around
            leaves = isinstance(statement, ast.Return) or self.ends_process(file, statement)
            way = self._way(file, statement, home)
            if statement.lineno < line and way.tests and (turns or leaves):
                yield way

    def _swallowing(self, file: File, line: int) -> list[ast.ExceptHandler]:
        """What catches the exceptions of a line inside its loop, and goes on."""
        loop = next(reversed(self.around(file, line)), None)
        return [
            handler
            for statement in file.statements_at(line)
            if isinstance(statement, TRIES) and line in lines(*statement.body)
            for handler in statement.handlers
            if loop and handler.lineno in lines(loop)
            if not any(isinstance(node, ast.Raise) for node in ast.walk(handler))
        ]

    def early_return(self, at: Where | None) -> Where | None:
        """The branch that leaves ahead of a line, in its function or in its only caller's; None where it is not one."""
        visited: set[_Home] = set()
        while (file := self._file(at)) is not None and at is not None and at.line is not None:
            home = file.function_at(at.line)
            if isinstance(home, ast.Module):
                return None
            past = self._past(file, home, at.line)
            ahead = [it for it in past if not isinstance(it.statement, ast.Continue)]
            calls = self._callers(home)
            if ahead or home in visited or len(calls) != 1:
                return _only_one(way.at for way in ahead)
            visited.add(home)
            call, caller = calls[0]
            at = caller.where(call)
        return None

    # What a loop does in each turn.

    def called_in(self, file: File, loop: ast.AST) -> set[ast.AST]:
        """The functions of the program that a loop calls, directly or through others."""
        if loop not in self._called:
            found: set[ast.AST] = set()
            waiting: list[tuple[File, ast.AST]] = [(file, loop)]
            for where, node in waiting:  # which grows
                for call in own_nodes(node):
                    new = [it for it in self._entered(call, where) if it.node not in found]
                    found.update(it.node for it in new)
                    waiting += [(it.file, it.node) for it in new]
            self._called[loop] = found
        return self._called[loop]

    def _entered(self, node: ast.AST, file: File) -> list[Entity]:
        with suppress(RecursionError):
            called = self._flow.called(Point(node, file)) if isinstance(node, ast.Call) else ()
            return [it for it in called if isinstance(it, Entity)]
        return []


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Those of a block and of the blocks inside, and of no function or class inside."""
    for statement in body:
        if not isinstance(statement, (*FUNCTIONS, ast.ClassDef)):
            yield statement
            yield from (it for it in own_nodes(statement) if isinstance(it, ast.stmt))


def _loop_of(file: File, statement: ast.stmt) -> Loop | None:
    """The loop that a ``break`` or a ``continue`` is about."""
    inner: ast.AST = statement
    for around in file.above(statement):
        if isinstance(around, LOOPS) and inner in around.body:
            return around
        inner = around
    return None


def _tests(file: File, statement: ast.stmt, end: ast.AST) -> Iterator[tuple[ast.If | ast.While, bool]]:
    """The conditions between a statement and what it stands in, the outermost first."""
    found: list[tuple[ast.If | ast.While, bool]] = []
    inner: ast.AST = statement
    for around in file.above(statement):
        if around is end:
            break
        if isinstance(around, ast.If):
            found.append((around, inner in around.body))
        inner = around
    return reversed(found)


def _only_one(places: Iterable[Where]) -> Where | None:
    """The line that all of these are; None where they are several."""
    found = {*places}
    return found.pop() if len(found) == 1 else None
