"""Moves what all ranks have to do out of a condition by rank."""

from __future__ import annotations

import libcst as cst

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.guards import plain_if, rank_guard
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.values import call_sites
from ddpdoctor.text import shorten

cures = ("DD219", "DD225", "DD303", "DD405")
after = ("call_module",)
_LONGEST = 40


def apply(case: Case) -> str:
    """Move the statement at the line; or the call of its function, where that is under the condition."""
    source, statement = case.source, _statement(case)
    if rank_guard(source, statement) is not None:
        move_out(source, statement)
        return f"{shorten(source.code(statement), _LONGEST)} on every rank"
    function = source.scope(statement)
    for call in call_sites(source, function) if function is not source.tree else ():
        guard = rank_guard(source, call)
        if guard is None:
            continue
        if (
            isinstance(source.statement(call).body[0], cst.Expr)
            and source.statement(call).body[0].value is call
        ):
            move_out(source, source.statement(call))
        else:
            name = f"{function.name.value}_result"
            source.insert_before(guard, f"{name} = {source.code(call)}")
            source.replace(call, name)
        return f"{function.name.value} called on every rank"
    raise CannotPatch("it is under no condition by rank in this file")


def _statement(case: Case) -> Node:
    """The statement at the line; where that is the condition itself, the only one under it, or the step."""
    source, statement = case.source, case.statement
    if not isinstance(statement, cst.If) or source.line(statement) != case.line:
        return statement
    body = list(statement.body.body) if isinstance(statement.body, cst.IndentedBlock) else []
    steps = [inner for inner in body if ".step(" in source.code(inner)]
    return body[0] if len(body) == 1 else next(iter(steps), statement)


def move_out(source: Source, statement: Node) -> None:
    """Move a statement in front of the condition by rank that it is under, or behind it."""
    guard = rank_guard(source, statement)
    assert guard is not None
    plain_if(source, guard)
    body = list(guard.body.body) if isinstance(guard.body, cst.IndentedBlock) else []
    if statement not in body:
        raise CannotPatch(f"line {source.line(statement)} is under more than the condition by rank")
    code = source.reindented(statement, "")
    if body == [statement]:
        source.insert_before(guard, code)
        source.delete_lines(guard)
    elif body[0] is statement:
        source.insert_before(guard, code)
        source.delete(statement)
    else:
        source.insert_after(guard, code)
        source.delete(statement)
