"""Moves what all ranks have to do out of a condition by rank."""

from __future__ import annotations

import ast

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.case import Case
from ddpdoctor.fix.reading import callers, calls, rank_guard
from ddpdoctor.fix.source import Node, Source
from ddpdoctor.fix.writing import plain_if
from ddpdoctor.text import shorten

cures = ("DD219", "DD225", "DD226", "DD303", "DD405")
after = ("call_module",)
_LONGEST = 40


def apply(case: Case) -> str:
    """Move the statement at the line; or the call of its function, where that is under the condition."""
    source, statement = case.source, _statement(case)
    if rank_guard(source, statement) is not None:
        move_out(source, statement)
        return f"{shorten(source.code(statement), _LONGEST)} on every rank"
    function = source.scope(statement)
    for there, call in callers(source, function):
        guard = rank_guard(there, call)
        if guard is None:
            continue
        called = there.statement(call)
        if isinstance(called, ast.Expr) and called.value is call:
            move_out(there, called)
        else:
            name = f"{function.name}_result"
            there.insert_before(guard, f"{name} = {there.code(call)}")
            there.replace(call, name)
        return f"{function.name} called on every rank"
    raise CannotPatch("it is under no condition by rank in this file")


def _statement(case: Case) -> Node:
    """The statement at the line; where that is the condition itself, the only one under it, or the step."""
    source, statement = case.source, case.statement
    if not isinstance(statement, ast.If) or statement.lineno != case.line:
        return statement
    steps = [inner for inner in statement.body if calls(source, "step", within=inner)]
    return statement.body[0] if len(statement.body) == 1 else next(iter(steps), statement)


def move_out(source: Source, statement: Node) -> None:
    """Move a statement in front of the condition by rank that it is under, or behind it."""
    guard = plain_if(source, rank_guard(source, statement))
    if statement not in guard.body or not source.begins_line(statement):
        raise CannotPatch(f"line {statement.lineno} is under more than the condition by rank")
    code = source.reindented(statement, "")
    if guard.body[0] is statement:
        source.insert_before(guard, code)
    else:
        source.insert_after(guard, code)
    if len(guard.body) == 1:
        source.delete_lines(guard)
    else:
        source.delete(statement)
