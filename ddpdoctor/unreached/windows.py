"""Windows of micro-batches after whose last backward the optimizer steps though that backward ran under no_sync()."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from ddpdoctor.model import Evidence
from ddpdoctor.program import Condition, Expression
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.expressions import Undecided
from ddpdoctor.program.files import File, lines, name_called
from ddpdoctor.program.index import Point
from ddpdoctor.program.trial import Trial
from ddpdoctor.program.ways import Way, ways_to
from ddpdoctor.unreached.lines import DDP, Sight, UnreachedLines

_WINDOW = 4
"""Micro-batches of the window that is tried, where the program does not tell how many there are."""
_TURNS = 40
_LENGTH = 1_000_000
"""Batches of a loader."""


@dataclass(frozen=True)
class _Loop:
    """A loop over micro-batches."""

    unreached: UnreachedLines
    file: File
    node: ast.AST

    def inside(self, call: Expression, way: Way) -> list[Condition] | None:
        """What has to be so in a turn for a call to be made; None where the loop does not lead to it."""
        home = self.file.scopes[self.node]
        for depth, at in enumerate(way.lines):
            here = at.file == self.file.path and self.file.function_at(at.line) is home
            if here and at.line in lines(self.node):
                inner = {(it.file, it.function) for it in way.lines[:depth]}
                return [it for it in way.conditions if self._is_inside(it, inner)]
        return None

    def _is_inside(self, condition: Condition, inner: set[tuple[str, str | None]]) -> bool:
        at = condition.at
        return (at.file, at.function) in inner or (at.file == self.file.path and at.line in lines(self.node))

    def every(self, calls: Sequence[Expression]) -> Iterator[tuple[Expression, list[Condition]]]:
        """Those of some calls that it leads to."""
        for call in calls:
            for way in ways_to(call):
                if (found := self.inside(call, way)) is not None:
                    yield call, found

    def holds(self, conditions: Sequence[Condition], turn: int) -> bool | None:
        """Whether all of these are so in a turn; None where that does not follow."""
        trial = Trial(lambda point: self._known(point, turn))
        try:
            found = [bool(trial.value(it.test)) is it.holds for it in conditions]
        except (Undecided, TypeError, ArithmeticError, RecursionError):
            return None
        return all(found)

    @property
    def last(self) -> int:
        """The number of its last turn, where it goes over the micro-batches of one window."""
        over = getattr(self.node, "iter", None)
        if isinstance(over, ast.Call) and name_called(over) in ("range", "trange") and len(over.args) == 1:
            with suppress(Undecided, TypeError, ArithmeticError, RecursionError):
                number = Expression(self.unreached.program, self.file, over.args[0])
                return int(Trial(lambda point: self._known(point, 0)).value(number)) - 1
        return _WINDOW - 1

    def _known(self, point: Point, turn: int) -> Any:
        node = point.node
        if isinstance(node, Definition) and (number := self._index(node, turn)) is not None:
            return number
        if isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            return self._counter(point, turn) or self._size(point)
        flow = self.unreached.program.flow
        if isinstance(node, ast.Call) and not flow.copies(point):
            return _LENGTH if name_called(node) == "len" else None
        given = isinstance(node, Definition) and node.how is How.PARAMETER and not flow.copies(point)
        return _WINDOW if given else None

    def _index(self, definition: Definition, turn: int) -> int | None:
        """The number of a turn, as the loop itself counts."""
        loop, value = self.node, definition.value
        if not isinstance(loop, ast.For) or definition.how is not How.ITERATED or value is not loop.iter:
            return None
        if not isinstance(value, ast.Call):
            return None
        name = name_called(value)
        if name == "enumerate" and definition.path == (0,):
            start = next((it.value for it in value.keywords if it.arg == "start"), None)
            start = value.args[1] if len(value.args) > 1 else start
            first = start.value if isinstance(start, ast.Constant) else 0
            return turn + first if isinstance(first, int) else None
        counts = name in ("range", "trange") and len(value.args) == 1 and not definition.path
        return turn if counts else None

    def _counter(self, point: Point, turn: int) -> int | None:
        """What a variable is that each turn adds one to."""
        flow, seen, first = self.unreached.program.flow, [point], None
        counts: ast.AugAssign | None = None
        for now in seen:  # which grows
            node = now.node
            if isinstance(node, ast.Constant) and isinstance(node.value, int):
                first = node.value
            if isinstance(node, Definition) and node.how is How.CHANGED:
                counts = self._adds_one(now, node) or counts
            seen += [it for it in flow.copies(now) if it not in seen]
        if counts is None or first is None:
            return None
        behind = (
            isinstance(point.node, ast.AST)
            and point.file is self.file
            and counts.lineno < getattr(point.node, "lineno", 0)
            and (self.file.scopes[point.node] is self.file.scopes[counts])
        )
        return first + turn + behind

    def _adds_one(self, point: Point, definition: Definition) -> ast.AugAssign | None:
        statement = point.file.parents.get(definition.node)
        if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add):
            return None
        one = isinstance(statement.value, ast.Constant) and statement.value.value == 1
        blocks = (it for it in point.file.above(statement) if isinstance(it, ast.For | ast.While | ast.If))
        return statement if one and next(blocks, None) is self.node else None

    def _size(self, point: Point) -> int | None:
        """A whole number that no turn changes."""
        ends = self.unreached.program.flow.ends(point)
        constants = [it.node for it in ends if isinstance(it.node, ast.Constant)]
        numbers = [it.value for it in constants if type(it.value) is int]
        plain = [it for it in ends if isinstance(it.node, ast.Name | ast.Attribute | ast.Subscript)]
        if len(numbers) == len(ends):
            return max(numbers) if len(set(numbers)) > 1 else None
        asks = [it for it in ends if isinstance(it.node, ast.Call) and self._is_setting(it)]
        return _WINDOW if len(numbers) + len(plain) + len(asks) == len(ends) else None

    def _is_setting(self, end: Point) -> bool:
        """Whether it is a whole number of the environment or a command line."""
        names = self.unreached.program.flow.called(end)
        return any(str(it).startswith(("builtins.int", "os.getenv", "os.environ.get")) for it in names)


def steps_without_sync(unreached: UnreachedLines) -> Iterator[Sight]:
    """The loops in which the last backward of a window is left out of the averaging."""
    program = unreached.program
    for file in program.files.values():
        named = [it for it in file.scopes if isinstance(it, ast.Attribute) and it.attr == "no_sync"]
        for made in named:
            call = Expression(program, file, made)
            if (own := _chosen(call)) is not None:
                for way in unreached.ways(call):
                    for loop in _loops_of(unreached, way)[:1]:
                        if (uses := loop.inside(call, way)) is not None:
                            uses += (replace(it, test=replace(it.test, context=way.context)) for it in own)
                            yield from _of_loop(loop, call, uses)
    flags = [it for it in program.assigned() if it[0].is_attribute("require_backward_grad_sync")]
    for flag, value in flags:
        for node in program.loops.around(flag.file, flag.node.lineno)[-1:]:
            alone = sum(it.file is flag.file and it.where.line in lines(node) for it, _ in flags) == 1
            if alone and unreached.is_unreached(flag.where) and not isinstance(value.node, ast.Constant):
                loop = _Loop(unreached, flag.file, node)
                within = [it for it in program.conditions(flag.where) if it.at.line in lines(node)]
                yield from _of_loop(loop, flag, [*within, Condition(value, False, flag.where)])


def _loops_of(unreached: UnreachedLines, way: Way) -> list[_Loop]:
    """The innermost loops around the lines of a way, the nearest first."""
    program = unreached.program
    places = ((program.files[at.file], at.line or 0) for at in way.lines)
    return [
        _Loop(unreached, file, it) for file, line in places for it in program.loops.around(file, line)[-1:]
    ]


def _chosen(no_sync: Expression) -> list[Condition] | None:
    """What has to be so in its own line; None if it is in no ``with``, variable of one, or what a function returns."""
    file, node, found = no_sync.file, no_sync.node, list[Condition]()
    for around in file.above(node):
        if isinstance(around, ast.IfExp):
            if node not in (around.body, around.orelse):
                return None
            found.append(Condition(no_sync.inner(around.test), node is around.body, file.where(around)))
        elif isinstance(around, ast.Call) and node is around.func:
            pass
        elif isinstance(around, ast.With | ast.withitem | ast.Assign | ast.Return):
            return found
        else:
            return None
        node = around
    return None


def _of_loop(loop: _Loop, no_sync: Expression, uses: list[Condition]) -> Iterator[Sight]:
    """Args: uses: what has to be so, in a turn, for a backward not to reduce."""
    unreached, file = loop.unreached, loop.file
    if _averages(unreached, file, loop.node):
        return
    home = file.scopes[loop.node]
    steps = [*loop.every(unreached.optimizer_steps)]
    behind = [
        it
        for it in unreached.optimizer_steps
        if it.file.scopes[it.node] is home and (it.where.line or 0) > lines(loop.node)[-1]
    ]
    if not steps and len(behind) == 1:
        turns, size, step = [loop.last], loop.last + 1, behind[0]
    elif steps and not behind:
        turns = [it for it in range(_TURNS) if any(loop.holds(conditions, it) for _, conditions in steps)]
        size = max((second - first for first, second in pairwise(turns)), default=0)
        taken = (call for call, conditions in steps for it in turns if loop.holds(conditions, it))
        step = next(taken, steps[0][0])
    else:
        return
    for turn in turns if size > 0 else ():
        if loop.holds(uses, turn) and not _reduces_later(loop, no_sync, turn):
            words = {"number": str(turn % size + 1), "size": str(size)}
            yield Sight(no_sync.where, words, (Evidence("steps after it", where=step.where),))
            return


def _reduces_later(loop: _Loop, no_sync: Expression, turn: int) -> bool:
    """Whether a backward behind the block is made in the same turn."""
    around = (it for it in no_sync.file.above(no_sync.node) if isinstance(it, ast.With))
    block = next(around, None)
    if block is None or no_sync.file is not loop.file:
        return False
    last = lines(block)[-1]
    later = [it for it in loop.unreached.backwards if it.file is loop.file and (it.where.line or 0) > last]
    return any(loop.holds(conditions, turn) is not False for _, conditions in loop.every(later))


def _averages(unreached: UnreachedLines, file: File, loop: ast.AST) -> bool:
    """Whether a loop, or its function, has a collective that may average by hand."""
    called = unreached.program.loops.called_in(file, loop)
    scopes = {it.file.scopes[it.node] for it in unreached.collectives if DDP not in it.called}
    return file.scopes[loop] in scopes or not called.isdisjoint(scopes)
