"""One way out of a loop, or past a line."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ddpdoctor.model import Where
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.conditions import Condition
from ddpdoctor.program.expressions import Expression
from ddpdoctor.program.files import File, lines
from ddpdoctor.program.index import Point, where_of

if TYPE_CHECKING:
    from ddpdoctor.program.program import Program


@dataclass(frozen=True, eq=False)
class WayOut:
    """One way out of a loop, or past a line of it or of a function."""

    program: Program
    file: File
    statement: ast.stmt
    """That leaves; the loop itself where its own condition does."""
    tests: tuple[tuple[ast.If | ast.While, bool], ...]
    """The statements that decide whether it is reached, outermost first, and whether their condition has to hold."""
    around: ast.AST
    """The loop, or the function."""

    @property
    def at(self) -> Where:
        """The line of the innermost condition; of the statement itself where it is under none."""
        return self.file.where(self.tests[-1][0] if self.tests else self.statement)

    @property
    def conditions(self) -> list[Condition]:
        """What has to be so for it to be reached, the outermost first."""
        return [
            Condition(Expression(self.program, self.file, it.test), holds, self.file.where(it))
            for it, holds in self.tests
        ]

    @property
    def needs(self) -> list[Condition]:
        """Each part of all that has to be so."""
        return [part for condition in self.conditions for part in condition.needs()]

    def changes(self, test: Expression) -> bool:
        """Whether what a condition looks at may be another in each turn of the loop."""
        return any(map(self._is_set_in_turn, self._makers(test)))

    def variables(self, test: Expression) -> Iterator[tuple[str, Where]]:
        """What the loop sets and a condition is made of, each with the line, unless a collective made it equal.

        A variable that the loop sets anew to something else, after the condition, is none of them.
        """
        makers = [it for it in self._makers(test) if self._is_set_in_turn(it)]
        nodes = {it.node for it in makers}
        for point in makers:
            assert isinstance(point.node, Definition)
            chains = self.program.flow.chains(point.file.scopes[point.node.node], point.file)
            others = (it for it in chains.all.get(point.node.key, ()) if it not in nodes)
            if not any(self._sets_anew(Point(it, point.file)) for it in others):
                yield point.node.key, where_of(point)

    def _makers(self, test: Expression) -> list[Point]:
        try:
            return self.program.flow.makers(test.point)
        except RecursionError:
            return []

    def _is_set_in_turn(self, point: Point) -> bool:
        definition = point.node
        if not isinstance(definition, Definition):
            return False
        is_set = definition.how in (How.ASSIGNED, How.CHANGED, How.ITERATED)
        return is_set and self._is_in_turn(point, definition)

    def _is_in_turn(self, point: Point, definition: Definition) -> bool:
        if point.file is self.file and getattr(definition.node, "lineno", 0) in lines(self.around):
            return True
        return point.file.scopes[definition.node] in self.program.loops.called_in(self.file, self.around)

    def _sets_anew(self, point: Point) -> bool:
        """Whether a definition gives a variable something else in each turn; a call that only gets it does not."""
        definition = point.node
        assert isinstance(definition, Definition)
        if not self._is_in_turn(point, definition):
            return False
        with suppress(RecursionError):
            return definition.how is not How.GIVEN or bool(self.program.flow.made_of(point).leaves)
        return True
