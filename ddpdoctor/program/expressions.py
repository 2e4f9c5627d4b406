"""What is asked of an expression, a condition or a way out of a loop."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpdoctor.model import Where
from ddpdoctor.program import files
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.index import Context, Entity, Origins, Point, Referent
from ddpdoctor.program.known import FINITE, Origin
from ddpdoctor.program.values import tests_of_returns

if TYPE_CHECKING:
    from ddpdoctor.program.program import Program

_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.FloorDiv: operator.floordiv,
}


class Undecided(Exception):
    """A part of an expression does not matter to what it is asked for."""


@dataclass(frozen=True, eq=False)
class Expression:
    """An expression of the program."""

    program: Program
    file: files.File
    node: ast.expr
    context: Context | None = None

    @property
    def where(self) -> Where:
        """Its line."""
        return self.file.where(self.node)

    @property
    def text(self) -> str:
        """As it is written."""
        return ast.unparse(self.node)

    @property
    def point(self) -> Point:
        """It, as a value of the graph."""
        return Point(self.node, self.file, self.context)

    @property
    def origins(self) -> Origins:
        """Where its value comes from."""
        return self.program.origins(self.point)

    def only(self, *allowed: Origin) -> bool:
        """Whether nothing else takes part in its value, apart from what is equal."""
        return self.program.only(self.point, *allowed)

    def kinds_without(self, hides: Callable[[Expression], bool]) -> frozenset[Origin]:
        """The kinds of its origins, without what is only made into an expression that ``hides`` is true of."""
        with suppress(RecursionError):
            leaves = self.program.flow.origins(self.point, self._hidden(hides))
            return frozenset(leaf.origin for leaf in leaves)
        return frozenset({Origin.UNKNOWN})

    @property
    def values(self) -> list[Expression | None]:
        """The expressions of which it is a copy; None for each that is no expression, as a loop's element is."""
        return [self._at(end) for end in self.program.flow.ends(self.point)]

    def _at(self, point: Point) -> Expression | None:
        if not isinstance(point.node, ast.expr):
            return None
        return Expression(self.program, point.file, point.node, point.context)

    def _hidden(self, hides: Callable[[Expression], bool]) -> Callable[[Point], bool]:
        return lambda point: (it := self._at(point)) is not None and hides(it)

    @property
    def identity(self) -> int:
        """A number, equal for expressions put together alike from the same values; 0 where too deep to read."""
        with suppress(RecursionError):
            return self.program.identities.of(self.point)
        return 0

    @property
    def turns_of(self) -> Expression | None:
        """What a loop goes over of which it is the element."""
        for end in self.program.flow.ends(self.point):
            definition = end.node
            if isinstance(definition, Definition) and definition.how is How.ITERATED and definition.value:
                over = self.program.flow.gone_over(end.at(definition.value), definition.path)
                return next((self._at(it) for point, _ in over for it in self.program.flow.ends(point)), None)
        return None

    @property
    def contents(self) -> list[tuple[object, Expression]]:
        """What a container holds, each with its key or position; None where that is no constant."""
        items = self.program.flow.contents(self.point)
        return [(key, it) for key, point in items if (it := self._at(point)) is not None]

    @property
    def names(self) -> frozenset[str]:
        """The qualified names of what it may be: a function or a class, of a library or of the program."""
        with suppress(RecursionError):
            return _names(self.program.flow.referents(self.point))
        return frozenset()

    @property
    def classes(self) -> frozenset[str]:
        """The classes of libraries that its value has, or whose subclass; of what a library gave, the function."""
        types = self.program.flow.types(self.point)
        own = (self.program.flow.library_bases(it) for it in types if isinstance(it, Entity))
        return frozenset(it for it in types if isinstance(it, str)).union(*own)

    @property
    def buffers(self) -> frozenset[str]:
        """The buffers that the program's class of a module registers."""
        return self.program.flow.buffers(self.point)

    def inner(self, node: ast.expr) -> Expression:
        """A part of it."""
        return Expression(self.program, self.file, node, self.context)

    def spans(self, line: int | None) -> bool:
        """Whether it stands on a line, or begins or ends there."""
        return line in files.lines(self.node)

    @property
    def is_call(self) -> bool:
        """Whether it is a call."""
        return isinstance(self.node, ast.Call)

    @property
    def called(self) -> frozenset[str]:
        """The qualified names of what it calls, of an object ``Class.__call__``; none where it is no call."""
        with suppress(RecursionError):
            return _names(self.program.flow.called(self.point)) if self.is_call else frozenset()
        return frozenset()

    def is_attribute(self, name: str) -> bool:
        """Whether it is an attribute of this name."""
        return isinstance(self.node, ast.Attribute) and self.node.attr == name

    def quotient(self) -> list[tuple[Expression, Expression]]:
        """What is divided, and by what; nothing where it is no quotient."""
        node = self.node
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            return []
        return [(self.inner(node.left), self.inner(node.right))]

    @property
    def added_to(self) -> str:
        """The variable that its statement adds it to; empty where it is no such statement."""
        parent = self.file.parents.get(self.node)
        return ast.unparse(parent.target) if isinstance(parent, ast.AugAssign) else ""

    def is_in_loop_at(self, line: int | None) -> bool:
        """Whether it stands in a loop that begins on a line, or in a comprehension there."""
        kinds = (*files.LOOPS, *files.COMPREHENSIONS)
        above = (it for it in self.file.above(self.node) if isinstance(it, kinds))
        return any(getattr(it, "lineno", None) == line for it in above)

    def choices(self) -> Iterator[Expression]:
        """The conditions that decide which of several values it is, the nearest first."""
        for part in self.made_of():
            if isinstance(part.node, ast.IfExp):
                yield part.inner(part.node.test)
            for called in self.program.flow.called(part.point) if part.is_call else ():
                if isinstance(called, Entity):
                    yield from (Expression(self.program, called.file, it) for it in tests_of_returns(called))

    def pieces(self) -> Iterator[Expression]:
        """The values that a text, a tuple or a dictionary is put together from; itself where it is none."""
        waiting = [self.point]
        visited = set(waiting)
        for point in waiting:  # which grows
            parts = _put_together(point.node)
            ends = [point] if parts or not isinstance(point.node, ast.Name) else self.program.flow.ends(point)
            inner = [end.at(it) for end in ends for it in _put_together(end.node)]
            waiting += [it for it in dict.fromkeys(inner) if it not in visited]
            visited.update(inner)
            if not inner and (it := self._at(point)) is not None:
                yield it

    @property
    def method(self) -> str:
        """The method that it calls, of an object whose class may be unknown; empty where it is no such call."""
        function = self.node.func if isinstance(self.node, ast.Call) else None
        return function.attr if isinstance(function, ast.Attribute) else ""

    @property
    def function_text(self) -> str:
        """What it calls, as it is written."""
        return ast.unparse(self.node.func) if isinstance(self.node, ast.Call) else self.text

    @property
    def arguments(self) -> list[Expression]:
        """What it gives to the function that it calls."""
        given = files.arguments(self.node) if isinstance(self.node, ast.Call) else []
        return [self.inner(it.value if isinstance(it, ast.Starred) else it) for it in given]

    @property
    def owner(self) -> Expression | None:
        """The object whose method it calls."""
        function = self.node.func if isinstance(self.node, ast.Call) else None
        return self.inner(function.value) if isinstance(function, ast.Attribute) else None

    def argument(self, position: int | None, name: str) -> Expression | None:
        """What a call gives as one parameter."""
        given = files.argument(self.node, position, name) if isinstance(self.node, ast.Call) else None
        return self.inner(given) if given is not None else None

    def made_of(self, hides: Callable[[Expression], bool] = lambda _: False) -> Iterator[Expression]:
        """The expressions that its value is made of, itself first, through assignments, calls and constructors; not
        those of what ``hides`` them."""
        with suppress(RecursionError):
            for point in self.program.flow.walk(self.point, self._hidden(hides)):
                node = point.node
                if isinstance(node, Definition) and node.how in (How.GIVEN, How.CHANGED) and node.value:
                    node = node.value  # a call that was given a variable to change is one
                if (it := self._at(point.at(node))) is not None:
                    yield it

    def variables(self) -> Iterator[Expression]:
        """The variables, attributes and elements by constants that it reads."""
        waiting: list[ast.AST] = [self.node]
        for node in waiting:  # which grows
            if isinstance(node, ast.expr) and files.dotted(node):
                yield self.inner(node)
            else:
                waiting += ast.iter_child_nodes(node)

    @property
    def asks_if_finite(self) -> bool:
        """Whether it asks whether a number is finite at all."""
        calls = [it for it in ast.walk(self.node) if isinstance(it, ast.Call)]
        methods = {name.rpartition(".")[2] for name in FINITE}
        return any(
            names & FINITE or (not names and getattr(call.func, "attr", "") in methods)
            for call in calls
            for names in [self.inner(call.func).names]
        )

    def value(self, of: Callable[[Expression], Any]) -> Any:  # noqa: PLR0911 - a kind of expression each
        """What it is, where ``of`` gives the value of each variable and call in it.

        Where ``of`` raises :class:`Undecided`, a part of ``and`` or ``or`` decides nothing.
        """
        node = self.node

        def inner(part: ast.expr) -> Any:
            return self.inner(part).value(of)

        match node:
            case ast.Constant():
                return node.value
            case ast.Tuple() | ast.List() | ast.Set():
                return list(map(inner, node.elts))
            case ast.UnaryOp(op=ast.Not()):
                return not inner(node.operand)
            case ast.UnaryOp(op=ast.USub()):
                return -inner(node.operand)
            case ast.BinOp() if type(node.op) in _OPERATORS:
                return _OPERATORS[type(node.op)](inner(node.left), inner(node.right))
            case ast.Compare():
                pairs = itertools.pairwise(map(inner, (node.left, *node.comparators)))
                return all(_OPERATORS[type(op)](*pair) for op, pair in zip(node.ops, pairs, strict=True))
            case ast.BoolOp():
                return self._joined(node, inner)
            case ast.IfExp():
                with suppress(Undecided):
                    return inner(node.body if inner(node.test) else node.orelse)
        return of(self)

    @staticmethod
    def _joined(node: ast.BoolOp, inner: Callable[[ast.expr], Any]) -> Any:
        decided = list[Any]()
        for part in node.values:
            with suppress(Undecided):
                decided.append(inner(part))
                if bool(decided[-1]) is isinstance(node.op, ast.Or):
                    break
        if not decided:
            raise Undecided
        return decided[-1]

    def truth(self, values: Mapping[str, object]) -> bool | None:
        """What it is where variables have these values; None where that does not follow, or a call takes part.

        A variable without a value holds an object.
        """
        if isinstance(self.node, ast.Name) and self.node.id not in values:
            return True
        try:
            return bool(self.value(lambda it: values[files.dotted(it.node) or ""]))
        except (LookupError, TypeError, ArithmeticError):
            return None

    def parts(self) -> Iterator[Expression]:
        """The conditions that ``and``, ``or`` and ``not`` join."""
        node = self.node
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node = node.operand
        if isinstance(node, ast.BoolOp):
            for value in node.values:
                yield from self.inner(value).parts()
        else:
            yield self.inner(node)


def _names(referents: frozenset[Referent]) -> frozenset[str]:
    return frozenset(it if isinstance(it, str) else files.name_of_scope(it.node) for it in referents)


def _put_together(node: object) -> list[ast.expr]:
    """What a text, a tuple or a dictionary is put together from."""
    match node:
        case ast.JoinedStr():
            return [it.value for it in node.values if isinstance(it, ast.FormattedValue)]
        case ast.Tuple(elts=several) | ast.List(elts=several) | ast.Dict(values=several):
            return several
        case ast.DictComp(value=each) | ast.ListComp(elt=each) | ast.GeneratorExp(elt=each):
            return [each]
        case ast.BinOp(left=ast.Constant(value=str()) | ast.JoinedStr()):
            return [node.left, node.right]
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()))):
            return files.arguments(node)
        case _:
            return []
