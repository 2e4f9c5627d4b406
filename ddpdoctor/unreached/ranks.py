"""For which ranks a condition on the rank holds, by trying it with the number of each."""

from __future__ import annotations

from typing import Any

from ddpdoctor.program import Condition, Expression, Origin
from ddpdoctor.program.expressions import Undecided
from ddpdoctor.text import ranks_phrase

SIZE = 4
"""Ranks of the job that is tried."""
_MOST_STEPS = 10
_MAIN = ("main_process", "is_global_zero", "_process_zero", "is_master_ordinal", "should_save", "should_log")
"""How what libraries give that is so on rank 0 ends."""
_LAST = "is_last_process"
_SIZES = ("get_world_size", "WORLD_SIZE")
_CONVERTS = frozenset({"builtins.int", "builtins.bool", "builtins.str"})


def ranks_where(condition: Condition) -> frozenset[int] | None:
    """The ranks of a job of four for which a condition is as it has to be; None where that is not told.

    Parts of which nothing is known count as true: a condition on the rank keeps the others from a line all the same.
    """
    try:
        return frozenset(rank for rank in range(SIZE) if bool(_on(rank, condition.test)) is condition.holds)
    except (Undecided, TypeError, ArithmeticError):
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
    return expression.value(lambda part: _of_source(part, rank, steps + 1))


def _of_source(part: Expression, rank: int, steps: int) -> Any:
    if part.is_call and not part.called.isdisjoint(_CONVERTS) and len(part.arguments) == 1:
        return _on(rank, part.arguments[0], steps)
    values = part.values
    ends = [it for it in values if it is not None and it.node is not part.node]
    if len(values) == len(ends) == 1:
        return _on(rank, ends[0], steps)
    origins = part.origins
    if origins.only(Origin.RANK) and (source := origins.of(Origin.RANK)):
        if source.name.endswith(_LAST):
            return rank == SIZE - 1
        return rank == 0 if source.name.endswith(_MAIN) else rank
    if origins.sources and all(it.name.strip("']").endswith(_SIZES) for it in origins.sources):
        return SIZE
    raise Undecided


def is_shut(condition: Condition) -> bool:
    """Whether a condition is never so: constants of the program say that, or the ranks that it needs are none."""
    return any(not known for it in condition.needs() if (known := ranks_where(it)) is not None)
