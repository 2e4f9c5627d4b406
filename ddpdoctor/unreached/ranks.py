"""For which ranks a condition on the rank holds, by trying it with the number of each."""

from __future__ import annotations

import ast
from typing import Any

from ddpdoctor.program import Condition, Expression, Origin
from ddpdoctor.program.chains import Definition, How
from ddpdoctor.program.expressions import Undecided
from ddpdoctor.program.index import Point
from ddpdoctor.program.known import is_size, number_on
from ddpdoctor.text import ranks_phrase

SIZE = 4
"""Ranks of the job that is tried."""
_MOST_STEPS = 40
_CONVERTS = frozenset({"builtins.int", "builtins.bool", "builtins.str"})


def ranks_where(condition: Condition) -> frozenset[int] | None:
    """The ranks of a job of four for which a condition is as it has to be; None where that is not told.

    Parts of which nothing is known count as true: a condition on the rank keeps the others from a line all the same.
    """
    try:
        return frozenset(rank for rank in range(SIZE) if bool(_on(rank, condition.test)) is condition.holds)
    except (Undecided, TypeError, ArithmeticError, RecursionError):
        return None


def who(ranks: frozenset[int] | None) -> str:
    """``only rank 0``, ``only ranks other than 0``, ``only some ranks``."""
    if ranks is None or not ranks:
        return "only some ranks"
    if len(ranks) == SIZE - 1:
        (other,) = set(range(SIZE)) - ranks
        return f"only ranks other than {other}"
    return f"only {ranks_phrase(ranks)}" if len(ranks) == 1 else "only some ranks"


def _on(rank: int, expression: Expression, steps: int = 0) -> Any:
    """What an expression is on a rank.

    Raises:
        Undecided: that does not follow from the rank alone.
    """
    if steps > _MOST_STEPS:
        raise Undecided
    return expression.value(lambda part: _of_part(part, rank, steps + 1))


def _of_part(part: Expression, rank: int, steps: int) -> Any:
    if part.is_call and not part.called.isdisjoint(_CONVERTS) and len(part.arguments) == 1:
        return _on(rank, part.arguments[0], steps)
    return _of_point(part, part.point, rank, steps)[0]


def _of_point(part: Expression, point: Point, rank: int, steps: int) -> tuple[Any, bool]:
    """What a value is that has one definition, apart from constants, which hold in a single process; and whether it is
    a constant."""
    node, flow = point.node, part.program.flow
    if steps > _MOST_STEPS or (isinstance(node, Definition) and node.how is How.CHANGED):
        raise Undecided
    if isinstance(node, ast.Constant):
        return node.value, True
    copies = flow.copies(point)
    found = [_of_copy(part, it, rank, steps + 1) for it in copies]
    made = flow.made_of(point) if not copies else None
    if made is not None and not made.parts:
        found += [(number_on(it.name, rank, SIZE), False) for it in made.leaves if it.origin is Origin.RANK]
        found += [(SIZE, False) for it in made.leaves if is_size(it.name)]
    others = [value for value, constant in found if not constant] or [value for value, _ in found]
    if not others or any(it != others[0] for it in others):
        raise Undecided
    return others[0], all(constant for _, constant in found)


def _of_copy(part: Expression, copy: Point, rank: int, steps: int) -> tuple[Any, bool]:
    if not isinstance(copy.node, ast.expr) or isinstance(copy.node, ast.Constant):
        return _of_point(part, copy, rank, steps)
    return _on(rank, Expression(part.program, copy.file, copy.node, copy.context), steps), False


def is_shut(condition: Condition) -> bool:
    """Whether a condition is never so: constants of the program say that, or the ranks that it needs are none."""
    return any(not known for it in condition.needs() if (known := ranks_where(it)) is not None)
