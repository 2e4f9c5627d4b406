"""What has to be so for a line to be reached."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from ddpdoctor.model import Where
from ddpdoctor.program.expressions import Expression
from ddpdoctor.program.index import Origins
from ddpdoctor.program.known import Origin


@dataclass(frozen=True, eq=False)
class Condition:
    """What has to be so for a line to be reached."""

    test: Expression
    holds: bool
    at: Where
    """The line of the statement that decides."""

    @property
    def statement(self) -> ast.If | ast.While | None:
        """That whose whole condition it is."""
        parent = self.test.file.parents.get(self.test.node)
        decides = isinstance(parent, ast.If | ast.While) and parent.test is self.test.node
        return parent if decides else None  # type: ignore[return-value]

    @property
    def otherwise(self) -> list[ast.stmt]:
        """What is run where it is not so."""
        statement = self.statement
        if not isinstance(statement, ast.If):
            return []
        return statement.orelse if self.holds else statement.body

    def needs(self) -> Iterator[Condition]:
        """The parts that each have to be so, where it is a conjunction."""
        node, holds = self.test.node, self.holds
        while isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            node, holds = node.operand, not holds
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And if holds else ast.Or):
            for value in node.values:
                yield from Condition(self.test.inner(value), holds, self.at).needs()
        else:
            yield Condition(self.test.inner(node), holds, self.at)

    @property
    def by_rank(self) -> Origins | None:
        """The origins of a part of it that the number of the rank decides; None where no part is one."""
        for part in self.test.parts():
            if part.only(Origin.RANK, Origin.ENVIRONMENT) and Origin.RANK in part.origins.kinds:
                return part.origins
        return None
