"""For which ranks a condition on the rank holds, by trying it with the number of each."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable, Mapping
from typing import Any

from ddpdoctor.program import Condition, Expression, Origin
from ddpdoctor.text import ranks_phrase

SIZE = 4
"""Ranks of the job that is tried."""
_MOST_STEPS = 20
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
_MAIN = ("main_process", "is_global_zero", "_process_zero", "is_master_ordinal", "should_save", "should_log")
"""How what libraries give that is so on rank 0 ends."""
_LAST = "is_last_process"
_SIZES = ("get_world_size", "WORLD_SIZE")
_CONVERTS = frozenset({"builtins.int", "builtins.bool", "builtins.str"})


class _Unknown(Exception):
    """The value does not follow from the rank alone."""


def ranks_where(condition: Condition) -> frozenset[int] | None:
    """The ranks of a job of four for which a condition is as it has to be; None where that is not told.

    Parts of which nothing is known count as true: a condition on the rank keeps the others from a line all the same.
    """
    try:
        return frozenset(
            rank for rank in range(SIZE) if bool(_value(condition.test, rank, 0)) is condition.holds
        )
    except _Unknown:
        return None


def who(ranks: frozenset[int] | None) -> str:
    """``only rank 0``, ``only ranks other than 0``, ``only some ranks``."""
    if ranks is None or not ranks:
        return "only some ranks"
    if len(ranks) == SIZE - 1:
        (other,) = set(range(SIZE)) - ranks
        return f"only ranks other than {other}"
    return f"only {ranks_phrase(ranks)}" if len(ranks) == 1 else "only some ranks"


def _value(expression: Expression, rank: int, depth: int) -> Any:  # noqa: PLR0911 - a kind of expression each
    if depth > _MOST_STEPS:
        raise _Unknown
    node = expression.node

    def of(part: ast.expr) -> Any:
        return _value(expression.inner(part), rank, depth + 1)

    match node:
        case ast.Constant():
            return node.value
        case ast.Tuple() | ast.List() | ast.Set():
            return [of(it) for it in node.elts]
        case ast.UnaryOp(op=ast.Not()):
            return not of(node.operand)
        case ast.UnaryOp(op=ast.USub()):
            return -of(node.operand)
        case ast.BinOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](of(node.left), of(node.right))
        case ast.Compare() if all(type(it) in _OPERATORS for it in node.ops):
            values = [of(node.left), *map(of, node.comparators)]
            pairs = itertools.pairwise(values)
            return all(_OPERATORS[type(op)](*pair) for op, pair in zip(node.ops, pairs, strict=True))
        case ast.BoolOp():
            return _joined(node, of)
    return _of_source(expression, rank, depth)


def _joined(node: ast.BoolOp, of: Callable[[ast.expr], Any]) -> bool:
    values = []
    for part in node.values:
        try:
            values.append(bool(of(part)))
        except _Unknown:
            values.append(isinstance(node.op, ast.And))  # what is not about the rank decides for all alike
    return all(values) if isinstance(node.op, ast.And) else any(values)


def _of_source(expression: Expression, rank: int, depth: int) -> Any:
    if expression.is_call and not expression.called.isdisjoint(_CONVERTS) and len(expression.arguments) == 1:
        return _value(expression.arguments[0], rank, depth + 1)
    values = expression.values
    ends = [it for it in values if it is not None and it.node is not expression.node]
    if len(values) == len(ends) == 1:
        return _value(ends[0], rank, depth + 1)
    origins = expression.origins
    if origins.only(Origin.RANK) and (source := origins.of(Origin.RANK)):
        if source.name.endswith(_LAST):
            return rank == SIZE - 1
        return rank == 0 if source.name.endswith(_MAIN) else rank
    if origins.sources and all(it.name.strip("']").endswith(_SIZES) for it in origins.sources):
        return SIZE
    raise _Unknown


def is_shut(condition: Condition) -> bool:
    """Whether a condition is never so: constants of the program say that, or the ranks that it needs are none."""
    return any(not known for it in condition.needs() if (known := ranks_where(it)) is not None)
