"""For which ranks a condition on the rank holds, tried with each number; which loaders read other samples on each."""

import ast
from contextlib import suppress
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
    if ranks and len(ranks) == SIZE - 1:
        (other,) = set(range(SIZE)) - ranks
        return f"only ranks other than {other}"
    return f"only {ranks_phrase(ranks)}" if ranks and len(ranks) == 1 else "only some ranks"


def _on(rank: int, expression: Expression) -> Any:
    """What an expression is on a rank; Undecided where that does not follow from the rank alone."""
    flow = expression.program.flow

    def known(point: Point) -> int | None:
        made = flow.made_of(point) if not flow.copies(point) else None
        leaves = made.leaves if made is not None and not made.parts else []
        numbers = [number_on(it.name, rank, SIZE) for it in leaves if it.origin is Origin.RANK]
        return next(iter(numbers or [SIZE for it in leaves if is_size(it.name)]), None)

    return Trial(known).value(expression)


def is_shut(condition: Condition) -> bool:
    """Whether a condition is never so: constants of the program say that, or the ranks that it needs are none."""
    return any(map(_is_never, condition.needs()))


def is_impossible(condition: Condition) -> bool:
    """Whether it is shut, and not only by a variable that is off by a constant: somebody turns that on some day."""
    return any(_is_never(it) and not _is_switch(it.test) for it in condition.needs())


def _is_never(condition: Condition) -> bool:
    return ranks_where(condition) == frozenset()


def _is_switch(test: Expression) -> bool:
    """Whether it is a variable whose value constants say, and neither the rank nor the number of ranks."""
    if not isinstance(test.node, ast.Name | ast.Attribute | ast.Subscript):
        return False
    with suppress(Undecided, TypeError, ArithmeticError, RecursionError):
        Trial(lambda _: None).value(test)
        return True
    return False


_SIZES = frozenset({"size", "numel", "dim", "nelement", "__len__"})
_SIZE_ATTRIBUTES = frozenset({"shape", "ndim", "dtype", "device", "type", "is_cuda"})
_KINDS = frozenset(f"builtins.{it}" for it in ("len", "isinstance", "hasattr", "type", "callable"))
_SAMPLERS = ("sampler", "batch_sampler")


def divides(loader: Expression) -> bool:
    """Whether a loader reads other samples on each rank, or in another order."""
    node = loader.node
    if not isinstance(node, ast.Call) or any(it.arg is None for it in node.keywords) or len(node.args) > 2:
        return False
    given = {it.arg: it.value for it in node.keywords}
    shuffle = given.get("shuffle")
    shuffles = isinstance(shuffle, ast.Constant) and shuffle.value is True
    samplers = (given[name] for name in _SAMPLERS if name in given)
    return shuffles or not all(isinstance(it, ast.Constant) for it in samplers)


def asks_size(value: Expression) -> bool:
    """Whether a part of a value is a size or a kind alone, and no sample."""
    node = value.node
    if isinstance(node, ast.Attribute):
        return node.attr in _SIZE_ATTRIBUTES
    return value.is_call and (value.method in _SIZES or not value.called.isdisjoint(_KINDS))
