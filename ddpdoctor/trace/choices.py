"""Comparisons that choose the best of what a loop has made so far."""

from __future__ import annotations

import ast

from ddpdoctor.model import Where
from ddpdoctor.trace.syntax import calls_of, enclosing_function, lines, parsed

_ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


def choice_of_best(at: Where | None) -> Where | None:
    """The comparison that a line stands under and that keeps the better number: ``if loss < best: best = loss``.

    Where the line is in a function that the same file calls, the comparison may stand around that call.
    """
    tree = parsed(at.file) if at is not None else None
    if at is None or at.line is None or tree is None:
        return None
    choices = [node for node in ast.walk(tree) if isinstance(node, ast.If) and _keeps_the_better(node)]
    function = enclosing_function(tree, at.line)
    calls = [at.line, *(calls_of(tree, function.name) if isinstance(function, ast.FunctionDef) else ())]
    around = (node for line in calls for node in choices if line in lines(*node.body))
    line = next((node.lineno for node in around), None)
    return Where(at.file, line, at.function) if line else None


def _keeps_the_better(node: ast.If) -> bool:
    compared = {
        ast.unparse(side)
        for test in ast.walk(node.test)
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], _ORDERS)
        for side in (test.left, *test.comparators)
    }
    assigned = (
        part for statement in node.body for part in ast.walk(statement) if isinstance(part, ast.Assign)
    )
    return any(ast.unparse(target) in compared for part in assigned for target in part.targets)
