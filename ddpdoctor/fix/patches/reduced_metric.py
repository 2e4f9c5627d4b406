"""Decides by the mean of a number over all ranks."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import mean, rank_guard
from ddpdoctor.fix.names import dotted, value_of
from ddpdoctor.fix.source import Node, Source

_NUMBERS = re.compile(r"loss|acc|correct|error|score|metric|val|total|perplexity|f1|auc", re.IGNORECASE)


def apply(case: Case) -> str:
    """Reduce the number before the line that uses it."""
    source, statement = case.source, case.statement
    plateau = [call for call in case.calls("step") if call.args]
    if plateau:
        value = plateau[0].args[0].value
        source.insert_before(statement, mean(source, statement, source.code(value), "metric"))
        source.replace(value, "metric")
        return "the mean over ranks for the scheduler"
    guard = rank_guard(source, statement)
    if guard is None:
        raise CannotPatch("the number is used under no condition by rank")
    name = _number(source, guard)
    source.insert_before(guard, mean(source, guard, name, name))
    return f"the mean of {name} over ranks"


def _number(source: Source, guard: Node) -> str:
    """The variable of the metric: of the condition, or of what is printed."""
    for node in source.all(cst.Name, within=guard):
        name: str = node.value
        if _NUMBERS.search(name) and dotted(node) and value_of(source, node) is not None:
            return name
    raise CannotPatch("the metric is not a variable")
