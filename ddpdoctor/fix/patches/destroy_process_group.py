"""Destroys the process group where the script that made it ends."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import DIST, call_sites, use
from ddpdoctor.fix.source import Node, Source

_DEPTH = 3


def apply(case: Case) -> str:
    """Call ``destroy_process_group`` at the end of the block that trains."""
    source, statement = case.source, case.statement
    guarded = _is_conditional(source, statement)
    for _ in range(_DEPTH):
        function = source.scope(statement)
        if function is source.tree or _trains(case, source, function):
            break
        sites = call_sites(source, function)
        if len(sites) != 1:
            break
        statement = source.statement(sites[0])
        guarded = guarded or _is_conditional(source, statement)
    call = f"{use(source, f'{DIST}.destroy_process_group')}()"
    if guarded:
        call = f"if {use(source, f'{DIST}.is_initialized')}():\n\t{call}"
    block = source.block(_outermost(source, statement))
    last = block[-1]
    ends = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], (cst.Return, cst.Raise))
    if ends and not isinstance(last.body[-1], cst.Return):
        raise CannotPatch("the block ends with an exception")
    if ends:
        source.insert_before(last, call)
    else:
        source.insert_after(last, call)
    return "destroy_process_group at the end"


def _trains(case: Case, source: Source, function: Node) -> bool:
    """Whether a wrapper was made between the lines of this function, or in another file."""
    recordings = [rank.recording for rank in case.trace.ranks if rank.recording]
    places = [wrapper.at for recording in recordings for wrapper in recording.wrappers if wrapper.at]
    lines = {place.line or 0 for place in places if case.project.path(place.file) == source.path}
    return not lines or any(source.line(function) <= line <= source.last_line(function) for line in lines)


def _is_conditional(source: Source, statement: Node) -> bool:
    return _outermost(source, statement) is not statement


def _outermost(source: Source, statement: Node) -> Node:
    """The statement around the conditions that a statement is under, but for that of the main module."""
    outer = statement
    for parent in source.above(statement):
        if isinstance(parent, cst.FunctionDef):
            break
        if isinstance(parent, cst.If) and "__name__" not in source.code(parent.test):
            outer = parent
    return outer
