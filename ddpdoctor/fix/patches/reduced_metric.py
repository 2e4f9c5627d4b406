"""Decides by the mean of a number over all ranks."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import mean, means, rank_guard
from ddpdoctor.fix.names import callee, dotted
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import assignments, free, value_of

cures = ("DD208", "DD502")
_NUMBERS = re.compile(r"loss|acc|correct|error|score|metric|val|total|perplexity|f1|auc", re.IGNORECASE)

_OTHERS = re.compile(r"loader|set$|path|file|dir|name|best|fn$|criterion|meter|evaluat|step", re.IGNORECASE)
"""Names that are like those of metrics."""


def apply(case: Case) -> str:
    """Reduce the number before the line that uses it."""
    source, statement = case.source, case.statement
    plateau = [call for call in case.calls("step") if call.args]
    if plateau:
        value = plateau[0].args[0].value
        metric = free(source, statement, "metric")
        source.insert_before(statement, mean(source, statement, source.code(value), metric))
        source.replace(value, metric)
        return "the mean over ranks for the scheduler"
    chooses = isinstance(statement, cst.If)
    guard = rank_guard(source, statement.body if chooses else statement)
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
    source.insert_before(at, means(source, at, names))
    return f"the mean of {', '.join(names)} over ranks"


def _calls_helper(source: Source, statement: Node) -> bool:
    """Whether a function of the script prints or keeps the number: then the condition by rank stands in there."""
    functions = {function.name.value for function in source.all(cst.FunctionDef)}
    return any(callee(source, call) in functions for call in source.all(cst.Call, within=statement))


def _quotient(source: Source, guard: Node, names: list[str]) -> Node | None:
    """The ``correct / total`` that the number is: ranks may have different counts, so that these are reduced."""
    values = (value for target, value in assignments(source, guard) if [dotted(target)] == names)
    value = next(values, None)
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.operator, cst.Divide):
        return None
    sides, all_come = (value.left, value.right), rank_guard(source, value) is None
    return value if all_come and all(_is_sum(source, side) for side in sides) else None


def _is_sum(source: Source, side: Node) -> bool:
    """Whether it is a plain number that the function adds up."""
    within, name = source.scope(side), dotted(side)
    sums = any(dotted(node.target) == name for node in source.all(cst.AugAssign, within=within))
    is_tensor = any(dotted(node.value) == name for node in source.all(cst.Attribute, within=within))
    return sums and not is_tensor


def metrics(source: Source, within: Node) -> list[str]:
    """The variables of metrics, and entries of dictionaries of metrics: of a condition, or of what is printed."""
    names = [node for node in source.all(cst.Name, within=within) if _is_assigned(source, node)]
    numbers = [number for name in names for number in _numbers(source, name)]
    return [
        number for number in dict.fromkeys(numbers) if _NUMBERS.search(number) and not _OTHERS.search(number)
    ]


def _numbers(source: Source, name: Node) -> list[str]:
    """``loss``, or ``metrics["loss"]`` where the variable has entries; none where it has attributes."""
    around = next(source.above(name))
    if isinstance(around, cst.Subscript) and around.value is name:
        key = around.slice[0].slice if len(around.slice) == 1 else None
        is_entry = isinstance(key, cst.Index) and isinstance(key.value, cst.SimpleString)
        return [source.code(around)] if is_entry else []
    if isinstance(around, cst.Attribute) and around.value is name:
        return []
    return [f"{name.value}[{key}]" for key in _keys(source, name)] or [name.value]


def _keys(source: Source, name: Node) -> list[str]:
    """The keys of the dictionary that the function returns whose value a variable has."""
    value = value_of(source, name)
    called = callee(source, value) if isinstance(value, cst.Call) else None
    for function in source.all(cst.FunctionDef):
        for leave in source.all(cst.Return, within=function) if function.name.value == called else ():
            if isinstance(leave.value, cst.Dict):
                return [
                    source.code(entry.key)
                    for entry in leave.value.elements
                    if isinstance(entry, cst.DictElement)
                ]
    return []


def _is_assigned(source: Source, name: Node) -> bool:
    """Whether it is a variable that was assigned here, by itself or beside others."""
    for target, _ in assignments(source, name):
        elements = target.elements if isinstance(target, (cst.Tuple, cst.List)) else ()
        if name.value in (dotted(target), *(dotted(element.value) for element in elements)):
            return True
    return False
