"""Destroys the process group where the script that made it ends."""

from __future__ import annotations

import contextlib

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.names import DIST, use
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import call_sites, may_lack_group
from ddpdoctor.model import Where

cures = ("DD310",)
_DEPTH = 3


def apply(case: Case) -> str:
    """Call ``destroy_process_group`` at the end of the block that trains."""
    source, statement = case.source, case.statement
    guarded = may_lack_group(source) or _is_conditional(source, statement)
    for _ in range(_DEPTH):
        function = source.scope(statement)
        if function is source.tree or _is_started(source, function):
            break
        if _trains(case, source, function) and not _leaves_early(source, function):
            break
        source, call = _only_call(case, source, function)
        statement = source.statement(call)
        guarded = guarded or _is_conditional(source, statement)
    line = f"{use(source, f'{DIST}.destroy_process_group')}()"
    if guarded:
        line = f"if {use(source, f'{DIST}.is_initialized')}():\n\t{line}"
    block = source.block(_outermost(source, statement))
    last = block[-1]
    ends = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], (cst.Return, cst.Raise))
    if ends and not isinstance(last.body[-1], cst.Return):
        raise CannotPatch("the block ends with an exception")
    if ends:
        source.insert_before(last, line)
    else:
        source.insert_after(last, line)
    return "destroy_process_group at the end"


def _trains(case: Case, source: Source, function: Node) -> bool:
    """Whether the ranks made a wrapper or trained between the lines of this function; true where nothing is known."""
    places = _places(case)
    lines = [place.line or 0 for place in places if case.project.path(place.file) == source.path]
    return not places or any(source.line(function) <= line <= source.last_line(function) for line in lines)


def _places(case: Case) -> list[Where]:
    """Where the ranks made wrappers and trained."""
    recordings = case.trace.recorded.values()
    made = [wrapper.at for recording in recordings for wrapper in recording.wrappers]
    passes = [pass_.at for recording in recordings for pass_ in recording.training_passes]
    return list(dict.fromkeys(filter(None, (*made, *passes))))


def _leaves_early(source: Source, function: Node) -> bool:
    """Whether a function returns before its end, which may be in a loop that trains."""
    leaves = [node for node in source.all(cst.Return, within=function) if source.scope(node) is function]
    last = function.body.body[-1]
    return any(source.statement(node) is not last for node in leaves)


def _is_started(source: Source, function: Node) -> bool:
    """Whether the function is passed to what starts the ranks: ``mp.spawn(main, ...)``."""
    return any(source.code(arg.value) == function.name.value for arg in source.all(cst.Arg))


def _only_call(case: Case, source: Source, function: Node) -> tuple[Source, Node]:
    """Where a function is called: in its own file, in that of the script, or in one that trains.

    Raises:
        CannotPatch: in none of them, or several times.
    """
    files = {other.path: other for other in (source, *case.scripts)}
    for place in _places(case):
        with contextlib.suppress(CannotPatch):
            other = case.project.source(place.file)
            files.setdefault(other.path, other)
    sites = [(other, call) for other in files.values() for call in call_sites(source, function, other)]
    if len(sites) != 1:
        raise CannotPatch(
            f"it is not known where the script ends: {function.name.value} is called {len(sites)} times"
        )
    return sites[0]


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
