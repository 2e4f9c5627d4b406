"""Decides by the mean of a number over all ranks."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import mean, means, rank_guard
from ddpdoctor.fix.names import assignments, dotted, free
from ddpdoctor.fix.source import Node, Source

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
    if guard is None:
        raise CannotPatch("the number is used under no condition by rank")
    used = metrics(source, statement.test)[:1] if chooses else metrics(source, statement)
    names = metrics(source, guard.test)[:1] or used or metrics(source, guard)
    if not names:
        raise CannotPatch("the metric is not a variable")
    source.insert_before(guard, means(source, guard, names))
    return f"the mean of {', '.join(names)} over ranks"


def metrics(source: Source, within: Node) -> list[str]:
    """The variables of metrics, and entries of dictionaries of metrics: of a condition, or of what is printed."""
    names = [node for node in source.all(cst.Name, within=within) if _is_assigned(source, node)]
    numbers = [_number(source, name) for name in names]
    return [
        number
        for number in dict.fromkeys(filter(None, numbers))
        if _NUMBERS.search(number) and not _OTHERS.search(number)
    ]


def _number(source: Source, name: Node) -> str | None:
    """``loss``, or ``metrics["loss"]`` where the variable has entries; None where it has attributes."""
    around = next(source.above(name))
    if isinstance(around, cst.Subscript) and around.value is name:
        key = around.slice[0].slice if len(around.slice) == 1 else None
        is_entry = isinstance(key, cst.Index) and isinstance(key.value, cst.SimpleString)
        return str(source.code(around)) if is_entry else None
    is_whole = not isinstance(around, cst.Attribute) or around.value is not name
    return str(name.value) if is_whole else None


def _is_assigned(source: Source, name: Node) -> bool:
    """Whether it is a variable that was assigned here, by itself or beside others."""
    for target, _ in assignments(source, name):
        elements = target.elements if isinstance(target, (cst.Tuple, cst.List)) else ()
        if name.value in (dotted(target), *(dotted(element.value) for element in elements)):
            return True
    return False
