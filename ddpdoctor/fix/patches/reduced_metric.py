"""Decides by the mean of a number over all ranks."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import assigned, dotted, free, names_in, rank_guard, value_of
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.writing import mean, means_of
from ddpdoctor.program import Origin
from ddpdoctor.program.points import Entity

cures = ("DD208", "DD502")


def apply(case: Case) -> str:
    """Reduce the number before the line that uses it."""
    source, statement = case.source, case.statement
    plateau = [call for call in case.calls("step") if call.args]
    if plateau:
        value = plateau[0].args[0]
        metric = free(source, statement, "metric")
        source.insert_before(statement, mean(source, statement, source.code(value), metric))
        source.replace(value, metric)
        return "the mean over ranks for the scheduler"
    chooses = isinstance(statement, ast.If)
    guard = rank_guard(source, statement.body[0] if chooses else statement)
    if guard is None and not _calls_helper(source, statement):
        raise CannotPatch("the number is used under no condition by rank")
    used = metrics(source, statement.test)[:1] if chooses else metrics(source, statement)
    names = (metrics(source, guard.test)[:1] if guard else []) or used or metrics(source, guard or statement)
    guard = guard or statement
    if not names:
        raise CannotPatch("the metric is not a variable")
    quotient = _quotient(source, guard, names)
    if quotient is not None:
        names = [source.code(quotient.left), source.code(quotient.right)]
    at = source.statement(quotient) if quotient is not None else guard
    source.insert_before(at, means_of(source, at, names))
    return f"the mean of {', '.join(names)} over ranks"


def _calls_helper(source: Source, statement: Node) -> bool:
    """Whether a function of the script prints or keeps the number: then the condition by rank stands in there."""
    calls = source.all(ast.Call, within=statement)
    return any(
        isinstance(it, Entity) for call in calls for it in source.program.flow.called(source.point(call))
    )


def _quotient(source: Source, guard: Node, names: list[str]) -> Node | None:
    """The ``correct / total`` that the number is: ranks may have different counts, so that these are reduced."""
    reads = [it for it in names_in(source, guard) if [source.code(it)] == names]
    value = assigned(source, reads[0]) if reads else None
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Div):
        return None
    sides, all_come = (value.left, value.right), rank_guard(source, value) is None
    return value if all_come and all(_is_sum(source, side) for side in sides) else None


def _is_sum(source: Source, side: Node) -> bool:
    """Whether it is a plain number that the function adds up."""
    within, name = source.scope(side), dotted(side)
    sums = any(dotted(node.target) == name for node in source.all(ast.AugAssign, within=within))
    is_tensor = any(dotted(node.value) == name for node in source.all(ast.Attribute, within=within))
    return sums and not is_tensor


def metrics(source: Source, within: Node) -> list[str]:
    """The numbers that each rank computes of its own data, of a condition or of what is printed: variables, and
    entries of dictionaries; not what the statement itself keeps for later, as the best so far."""
    around = source.statement(within)
    kept = {dotted(target) for node in source.all(ast.Assign, within=around) for target in node.targets}
    reads = [it for it in names_in(source, within) if dotted(it) not in kept and _is_variable(source, it)]
    own = [it for it in reads if _is_of_own_data(source, it)]
    own = own or [it for it in reads if Origin.UNKNOWN in source.expression(it).origins.kinds]
    return list(dict.fromkeys(number for name in own for number in _numbers(source, name)))


def _is_variable(source: Source, name: Node) -> bool:
    """Whether it is read as a value, and is no object whose attributes or methods are."""
    parent = source.file.parents[name]
    is_called = isinstance(parent, ast.Call) and parent.func is name
    is_owner = isinstance(name, ast.Attribute) or isinstance(parent, ast.Attribute)
    return not is_called and not is_owner


def _is_of_own_data(source: Source, value: Node) -> bool:
    """Whether it is computed of a DataLoader's batches, or of the part of random numbers or files that a rank takes."""
    kinds = source.expression(value).origins.kinds
    parts = kinds & {Origin.RANDOM, Origin.FILES}
    return Origin.OWN_DATA in kinds or (Origin.RANK in kinds and bool(parts))


def _numbers(source: Source, name: Node) -> list[str]:
    """``loss``, ``metrics["loss"]``, or each entry of ``metrics`` that a rank computed of its own data."""
    made = value_of(source, name)
    if not isinstance(made, ast.Dict):
        return [source.code(name)]
    entries = [(key, value) for key, value in zip(made.keys, made.values, strict=True) if key is not None]
    own = [key for key, value in entries if _is_of_own_data(source, value)]
    return [f"{source.code(name)}[{source.code(key)}]" for key in own]
