"""What collectives make equal in place: where they are given a value, and which attributes."""

import ast
from collections.abc import Collection, Iterable, Iterator

from ddpdoctor.model import Where
from ddpdoctor.program import Expression, Program
from ddpdoctor.program.chains import Definition
from ddpdoctor.program.files import name_called
from ddpdoctor.program.index import Point
from ddpdoctor.program.known import REDUCES, TO_ONE
from ddpdoctor.program.ways import ways_to

GIVE_ALL = TO_ONE | REDUCES.keys()
"""Collectives that leave in what they are given what all ranks gave."""


class Sent:
    """The values that such collectives are given, by their calls."""

    def __init__(self, program: Program, calls: Iterable[Expression]) -> None:
        self._program = program
        self._given = [(call, self._same(it.point)) for call in calls for it in call.arguments[:1]]
        self._lines = {it.node: [at for way in ways_to(it) for at in way.lines] for it, _ in self._given}
        self._attributes = {
            attribute.attr: (call, point.at(attribute.value))
            for call, points in self._given
            for point in points
            for attribute in _attributes(point)
        }

    def is_attribute(self, value: Expression) -> bool:
        """Whether it is an attribute that a collective is given in another function: in which order is not asked."""
        if not isinstance(value.node, ast.Attribute) or value.node.attr not in self._attributes:
            return False
        call, owner = self._attributes[value.node.attr]
        types = self._program.flow.types
        if call.file.scopes[call.node] is value.file.scopes[value.node]:
            return False
        here, there = types(value.inner(value.node.value).point), types(owner)
        return not (here and there) or not here.isdisjoint(there)

    def is_sent(self, value: Expression, filled: Expression, used: Expression) -> bool:
        """Whether a collective is given a value ahead of where it is read, and not ahead of what fills it."""
        made, here = self._made(self._same(value.point)), _places(value)
        return any(
            self._is_ahead(lines, here) and not self._is_early(lines, filled, [*here, *_places(used)])
            for call, points in self._given
            if not made.isdisjoint(self._made(points))
            for lines in [self._lines[call.node]]
        )

    def is_early(self, call: Expression, filled: Expression, used: Expression) -> bool:
        """Whether a collective is called ahead of what fills a value, and that is ahead of its use."""
        return self._is_early(_places(call), filled, _places(used))

    def _is_early(self, lines: Collection[Where], filled: Expression, used: Collection[Where]) -> bool:
        fills = _places(filled)
        return self._is_ahead(lines, fills) and self._is_ahead(fills, used)

    def _is_ahead(self, first: Collection[Where], last: Collection[Where]) -> bool:
        return any(self._program.is_ahead(one, other) for one in first for other in last)

    def _same(self, value: Point) -> list[Point]:
        """A value and those that are the same object; what ``clone`` gives is another one."""
        found = [value]
        for now in found:  # which grows
            node = now.node
            is_clone = isinstance(node, ast.Call) and name_called(node) == "clone"
            copies = [] if is_clone else self._program.flow.copies(now)
            found += [it for it in dict.fromkeys(copies) if it not in found]
        return found

    def _made(self, points: Iterable[Point]) -> set[Point]:
        """The calls by which objects are made."""
        flow = self._program.flow
        calls = (it for it in points if isinstance(it.node, ast.Call))
        return {it for it in calls if name_called(it.node) == "clone" or not flow.copies(it)}  # type: ignore[arg-type]


def _attributes(point: Point) -> Iterator[ast.Attribute]:
    """The attribute that something is, or that a loop goes over of which it is the element."""
    node = point.node.value if isinstance(point.node, Definition) else point.node
    if isinstance(node, ast.Attribute):
        yield node


def _places(value: Expression) -> list[Where]:
    """Its line, and those of the calls by which its function is entered."""
    found, context = [value.where], value.context
    while context is not None:
        found.append(context.file.where(context.call))
        context = context.outer
    return found
