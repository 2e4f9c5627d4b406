"""For which ranks a condition on the rank holds, by trying it with the number of each."""

from __future__ import annotations

from typing import Any

from ddpdoctor.program import Condition, Expression, Origin
from ddpdoctor.program.expressions import Undecided
from ddpdoctor.program.index import Point
from ddpdoctor.program.known import is_size, number_on
from ddpdoctor.program.trial import Trial
from ddpdoctor.text import ranks_phrase

SIZE = 4
"""Ranks of the job that is tried."""


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


def _on(rank: int, expression: Expression) -> Any:
    """What an expression is on a rank.

    Raises:
        Undecided: that does not follow from the rank alone.
    """
    flow = expression.program.flow

    def known(point: Point) -> int | None:
        made = flow.made_of(point) if not flow.copies(point) else None
        leaves = made.leaves if made is not None and not made.parts else []
        numbers = [number_on(it.name, rank, SIZE) for it in leaves if it.origin is Origin.RANK]
        return next(iter(numbers or [SIZE for it in leaves if is_size(it.name)]), None)

    return Trial(known).value(expression)


def is_shut(condition: Condition) -> bool:
    """Whether a condition is never so: constants of the program say that, or the ranks that it needs are none."""
    return any(not known for it in condition.needs() if (known := ranks_where(it)) is not None)
