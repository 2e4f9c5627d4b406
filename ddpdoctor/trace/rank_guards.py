"""Where the script decides by the rank who comes to a line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ddpdoctor.model import Where
from ddpdoctor.trace.syntax import FUNCTIONS, calls_of, enclosing_function, lines, parsed

_RANK = re.compile(
    r"(?<![a-z])rank(?![a-z])|is_main|main_process|master|is_primary|is_root|gpu == \d", re.IGNORECASE
)
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)


def guarded_call(where: Where | None) -> Where | None:
    """The call under a condition on the rank that leads to a line which itself is under none.

    None where the line is under one, and where several such calls in its file lead to it, or none.
    """
    tree = parsed(where.file) if where else None
    if where is None or where.line is None or tree is None:
        return None
    line, visited = where.line, set[str]()
    while not isinstance(function := enclosing_function(tree, line), ast.Module):
        if function.name in visited or _is_guarded(function.body, line):
            return None
        visited.add(function.name)
        calls = calls_of(tree, function.name)
        guarded = [call for call in calls if _is_guarded(enclosing_function(tree, call).body, call)]
        if len(guarded) == 1:
            caller = getattr(enclosing_function(tree, guarded[0]), "name", "<module>")
            return replace(where, line=guarded[0], function=caller)
        if guarded or len(calls) != 1:
            return None
        line = calls[0]
    return None


def is_for_some_ranks(where: Where | None) -> bool:
    """Whether a line stands under a condition on the rank, or is only led to by a call that does."""
    tree = parsed(where.file) if where else None
    if where is None or where.line is None or tree is None:
        return False
    scope = enclosing_function(tree, where.line)
    return _is_guarded(scope.body, where.line) or guarded_call(where) is not None


def _is_guarded(block: Sequence[ast.stmt], line: int) -> bool:
    """Whether a line of a block stands under a condition on the rank, or behind one that leaves the block."""
    for statement in block:
        by_rank = isinstance(statement, ast.If) and _RANK.search(ast.unparse(statement.test)) is not None
        if line in lines(statement):
            return by_rank or any(_is_guarded(inner, line) for inner in _blocks(statement))
        if by_rank and isinstance(statement, ast.If) and isinstance(statement.body[-1], _LEAVES):
            return True
        if line < statement.lineno:
            return False
    return False


def _blocks(statement: ast.stmt) -> Iterator[Sequence[ast.stmt]]:
    """The blocks of statements directly inside one; a function's are not run where it stands."""
    if isinstance(statement, FUNCTIONS):
        return
    for name in ("body", "orelse", "finalbody"):
        yield getattr(statement, name, [])
    for handler in getattr(statement, "handlers", []):
        yield handler.body
