"""Lets one rank write what every rank writes."""

from __future__ import annotations

import re

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import all_come_to, barrier, is_rank_0, rank_guard, under_rank_0
from ddpdoctor.fix.names import calls
from ddpdoctor.fix.source import Node, Source

cures = ("DD402",)
_IS_THERE = re.compile(r"exists|is_?file|is_?dir", re.IGNORECASE)

_OF_WORKERS = ("__getitem__", "__getitems__", "__iter__", "collate_fn", "worker_init_fn")
"""What DataLoader workers call."""


def apply(case: Case) -> str:
    """Put the statement that writes under rank 0, with a barrier behind it."""
    source = case.source
    statement = written(source, case.statement)
    return under(source, statement, is_rank_0(source, statement), "rank 0")


def under(source: Source, statement: Node, condition: str, rank: str) -> str:
    """Put a statement under a condition, with a barrier behind it if all ranks come there.

    A condition by a local rank under which several ranks write already is replaced.
    """
    guard = rank_guard(source, statement)
    if guard is not None and isinstance(guard.test, cst.Comparison) and "local" in source.code(guard.test):
        source.replace(guard.test, condition)
        return f"written on {rank}"
    under_rank_0(source, statement, condition)
    if not all_come_to(source, statement):
        return f"written on {rank}"
    source.insert_after(statement, barrier(source))
    return f"written on {rank}, with a barrier behind it"


def written(source: Source, statement: Node) -> Node:
    """The statement that uses a file, with the one that opens the file and the condition that asks whether it is there.

    Raises:
        CannotPatch: it is no statement of its own.
    """
    if isinstance(statement, cst.FunctionDef):
        raise CannotPatch("the line is no statement that uses a file")
    for around in source.above(statement):
        if isinstance(around, cst.FunctionDef):
            if around.name.value in _OF_WORKERS:
                raise CannotPatch(
                    "DataLoader workers write it, which are no ranks and cannot wait for each other"
                )
            break
        opens = isinstance(around, cst.With) and "open(" in source.code(around.items[0].item)
        asks = isinstance(around, cst.If) and _IS_THERE.search(source.code(around.test))
        if (opens or asks) and not calls(source, "barrier", within=around):
            statement = around
    return statement
