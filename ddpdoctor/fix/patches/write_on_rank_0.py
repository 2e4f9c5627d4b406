"""Lets one rank write what every rank writes."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import DIST
from ddpdoctor.fix.reading import all_come_to, calls, dotted, rank_guard
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.writing import barrier, is_rank_0, under_condition
from ddpdoctor.program import Origin
from ddpdoctor.program.files import FUNCTIONS

cures = ("DD402",)
tells = True
_OF_WORKERS = ("__getitem__", "__getitems__", "__iter__")
"""Methods of datasets that DataLoader workers call."""
_GIVEN_TO_WORKERS = ("collate_fn", "worker_init_fn")


def apply(case: Case) -> str:
    """Put the statement that writes under rank 0, with a barrier behind it."""
    source = case.source
    statement = written(source, case.statement)
    return under(source, statement, is_rank_0(source, statement), "rank 0")


def under(source: Source, statement: Node, condition: str, rank: str) -> str:
    """Put a statement under a condition, with a barrier behind it if all ranks come there.

    A condition by a rank under which several ranks write already is replaced.
    """
    guard = rank_guard(source, statement)
    if guard is not None and isinstance(guard.test, ast.Compare):
        source.replace(guard.test, condition)
        return f"written on {rank}"
    under_condition(source, statement, condition)
    if not all_come_to(source, statement):
        return f"written on {rank}"
    source.insert_after(statement, barrier(source))
    return f"written on {rank}, with a barrier behind it"


def written(source: Source, statement: Node) -> Node:
    """The statement that uses a file, with the one that opens the file and the condition that asks whether it is there.

    Raises:
        CannotPatch: it is no statement of its own.
    """
    function = source.scope(statement)
    if isinstance(statement, FUNCTIONS):
        raise CannotPatch("the line is no statement that uses a file")
    if isinstance(function, FUNCTIONS) and (function.name in _OF_WORKERS or _is_given(source, function)):
        raise CannotPatch("DataLoader workers write it, which are no ranks and cannot wait for each other")
    for around in source.within_function(statement):
        opens = isinstance(around, ast.With) and calls(source, "open", within=around.items[0].context_expr)
        asks = isinstance(around, ast.If) and Origin.FILES in source.expression(around.test).origins.kinds
        if (opens or asks) and not calls(source, f"{DIST}.barrier", within=around):
            statement = around
    return statement


def _is_given(source: Source, function: Node) -> bool:
    """Whether DataLoaders are given a function that their workers call."""
    keywords = (it for call in source.file.calls for it in call.keywords)
    return any(it.arg in _GIVEN_TO_WORKERS and dotted(it.value) == function.name for it in keywords)
