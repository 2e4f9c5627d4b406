"""Destroys the process group where the script that made it ends."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.imports import DIST, use
from ddpdoctor.fix.reading import arguments, callers, has_group, may_lack_group
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.model import Where

cures = ("DD310",)
tells = True
_DEPTH = 3


def apply(case: Case) -> str:
    """Call ``destroy_process_group`` at the end of the block that trains."""
    source, statement = case.source, case.statement
    guarded = may_lack_group(source) or _outermost(source, statement) is not statement
    for _ in range(_DEPTH):
        function = source.scope(statement)
        if function is source.tree or _is_started(source, function):
            break
        if _trains(case, source, function) and not _leaves_early(source, function):
            break
        source, call = _only_call(source, function)
        statement = source.statement(call)
        guarded = guarded or _outermost(source, statement) is not statement
    line = f"{use(source, f'{DIST}.destroy_process_group')}()"
    if guarded:
        line = f"if {has_group(source)}:\n\t{line}"
    last = source.block(_outermost(source, statement))[-1]
    if isinstance(last, ast.Raise):
        raise CannotPatch("the block ends with an exception")
    insert = source.insert_before if isinstance(last, ast.Return) else source.insert_after
    insert(last, line)
    return "destroy_process_group at the end"


def _trains(case: Case, source: Source, function: Node) -> bool:
    """Whether the ranks made a wrapper or trained between the lines of this function; true where nothing is known."""
    recordings = case.trace.recorded.values()
    made = [wrapper.at for recording in recordings for wrapper in recording.wrappers]
    passes = [pass_.at for recording in recordings for pass_ in recording.training_passes]
    places: list[Where] = [place for place in (*made, *passes) if place]
    lines = [place.line or 0 for place in places if case.project.path(place.file) == source.path]
    return not places or any(function.lineno <= line <= function.end_lineno for line in lines)


def _leaves_early(source: Source, function: Node) -> bool:
    """Whether a function returns before its end, which may be in a loop that trains."""
    leaves = [node for node in source.all(ast.Return, within=function) if source.scope(node) is function]
    return any(node is not function.body[-1] for node in leaves)


def _is_started(source: Source, function: Node) -> bool:
    """Whether the function is passed to what starts the ranks: ``mp.spawn(main, ...)``."""
    given = (it for call in source.file.calls for it in arguments(call))
    return any(isinstance(it, ast.Name) and it.id == function.name for it in given)


def _only_call(source: Source, function: Node) -> tuple[Source, Node]:
    """Where a function is called in the program.

    Raises:
        CannotPatch: nowhere, or several times.
    """
    sites = callers(source, function)
    if len(sites) != 1:
        raise CannotPatch(
            f"it is not known where the script ends: {function.name} is called {len(sites)} times"
        )
    return sites[0]


def _outermost(source: Source, statement: Node) -> Node:
    """The statement around the conditions that a statement is under, but for that of the main module."""
    conditions = [it for it in source.within_function(statement) if isinstance(it, ast.If)]
    others = [it for it in conditions if "__name__" not in source.code(it.test)]
    return others[-1] if others else statement
