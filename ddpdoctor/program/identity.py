"""Which expressions have the same value, as two that are put together alike from the same values have."""

import ast
from collections.abc import Hashable

from ddpdoctor.program.chains import Definition
from ddpdoctor.program.flow import Flow
from ddpdoctor.program.index import Point
from ddpdoctor.program.known import is_pure, origin_of


class Identities:
    """Numbers of the values of a program: two have the same one if they are put together alike from the same.

    Each way to put values together has one number, as in value numbering by hashing (Cocke and Schwartz,
    "Programming Languages and Their Compilers", 1970).
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        self._of_points: dict[Point, int] = {}
        self._of_shapes: dict[Hashable, int] = {}
        self._under_way: set[Point] = set()

    def of(self, point: Point) -> int:
        """The number of a value; RecursionError where it is put together too deep."""
        if point in self._under_way:  # of a variable that a loop changes
            return self._number(self._place(point))
        if point not in self._of_points:
            self._under_way.add(point)
            try:
                self._of_points[point] = self._find(point)
            finally:
                self._under_way.discard(point)
        return self._of_points[point]

    def _find(self, point: Point) -> int:
        node, flow = point.node, self._flow
        if isinstance(node, ast.Constant):
            return self._number((type(node.value), repr(node.value)))
        if copies := flow.copies(point):
            numbers = frozenset(map(self.of, copies))
            return next(iter(numbers)) if len(numbers) == 1 else self._number(numbers)
        if isinstance(node, Definition):
            return self._number(self._place(point))
        if isinstance(node, ast.Call):
            called = flow.called(point)
            pure = all(isinstance(it, str) and is_pure(it) and not origin_of(it) for it in called)
            if not (called and pure):
                return self._number(self._place(point))
            parts: list[ast.AST] = [node.func, *node.args, *(each.value for each in node.keywords)]
        else:
            parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        named = getattr(node, "attr", "") or getattr(node, "id", "")
        operators = [type(it) for it in (getattr(node, "op", None), *getattr(node, "ops", ())) if it]
        inside = (self.of(point.at(part)) for part in parts)
        return self._number((type(node), named, *operators, *inside))

    def _number(self, shape: Hashable) -> int:
        return self._of_shapes.setdefault(shape, len(self._of_shapes) + 1)

    @staticmethod
    def _place(point: Point) -> Hashable:
        node = point.node
        stands = node.node if isinstance(node, Definition) else node
        place = getattr(stands, "lineno", 0), getattr(stands, "col_offset", 0)
        return point.file.path, *place, getattr(node, "key", "")
