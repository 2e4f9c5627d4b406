"""Loops that are left by each rank's own clock, as the source shows."""

from __future__ import annotations

import ast

from ddpdoctor.model import Where
from ddpdoctor.trace.source_loops import exit_branches
from ddpdoctor.trace.syntax import (
    FUNCTIONS,
    HARMLESS,
    called_name,
    computed_from,
    enclosing_function,
    is_named,
    may_be_exchanged,
    own_nodes,
    parsed,
)

_CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "now", "utcnow"}
_MODULES = {"time", "datetime"}


def clock_exit(update: Where | None) -> Where | None:
    """The condition by which a loop around an update of the weights ends after some time; None where none is certain.

    It is certain where the time is compared with a constant, or by a function of the file that does nothing else, and
    nothing computed from it is given to a function that might exchange it with other ranks.
    """
    tree = parsed(update.file) if update is not None else None
    if update is None or update.line is None or tree is None:
        return None
    branches = exit_branches(update)
    scope = enclosing_function(tree, update.line)
    names = computed_from(scope, reads_clock)
    if may_be_exchanged(scope, names, reads_clock):
        return None
    constants = _constants(tree) | _constants(scope)
    conditions = (node for node in own_nodes(scope) if isinstance(node, ast.If | ast.While))
    timed = (
        node for node in conditions if _is_over(node.test, names, constants) or _asks_if_over(node.test, tree)
    )
    line = next((node.lineno for node in timed if node.lineno in branches), None)
    return Where(update.file, line, update.function) if line else None


def reads_clock(node: ast.AST) -> bool:
    """Whether it asks for the time."""
    if not isinstance(node, ast.Call):
        return False
    function = node.func
    if isinstance(function, ast.Attribute):
        owner = function.value
        last = getattr(owner, "attr", getattr(owner, "id", ""))
        return function.attr in _CLOCKS and last in _MODULES
    return isinstance(function, ast.Name) and function.id in _CLOCKS - {"now", "utcnow"}


def _constants(tree: ast.AST) -> set[str]:
    """Names that are assigned a number, and nothing else."""
    assigned = [
        (target.id, node.value)
        for node in own_nodes(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    others = {name for name, value in assigned if not _is_number(value)}
    return {name for name, value in assigned if _is_number(value)} - others


def _is_number(node: ast.AST) -> bool:
    """A number, or a product of numbers: 3 * 3600."""
    if isinstance(node, ast.BinOp):
        return _is_number(node.left) and _is_number(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def _is_fixed(node: ast.AST, constants: set[str]) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_fixed(node.left, constants) and _is_fixed(node.right, constants)
    return _is_number(node) or is_named(node, constants)


def _is_over(test: ast.expr, names: set[str], constants: set[str]) -> bool:
    """Whether a condition compares the time with a number, or with some of those that have a name."""
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    sides = (test.left, test.comparators[0])
    timed = [any(reads_clock(part) or is_named(part, names) for part in ast.walk(side)) for side in sides]
    fixed = [_is_fixed(side, constants) for side in sides]
    return (timed[0] and fixed[1]) or (timed[1] and fixed[0])


def _asks_if_over(test: ast.expr, tree: ast.Module) -> bool:
    """Whether a condition is the answer of a function or method that compares the time, and calls nothing more."""
    asked = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else test
    if not isinstance(asked, ast.Call):
        return False
    name = called_name(asked)
    defined = [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and node.name == name]
    parts = list(own_nodes(defined[0])) if len(defined) == 1 else []
    calls = (part for part in parts if isinstance(part, ast.Call))
    returns = [part.value for part in parts if isinstance(part, ast.Return)]
    compares = len(returns) == 1 and isinstance(returns[0], ast.Compare)
    clocks = any(reads_clock(part) for part in parts)
    return compares and clocks and all(reads_clock(call) or called_name(call) in HARMLESS for call in calls)
