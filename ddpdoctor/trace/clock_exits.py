"""Loops that are left by each rank's own clock, as the source shows."""

from __future__ import annotations

import ast

from ddpdoctor.model import Where
from ddpdoctor.trace.source_loops import exit_branches
from ddpdoctor.trace.syntax import called_name, enclosing_function, own_nodes, parsed

_CLOCKS = {"time", "monotonic", "perf_counter", "process_time", "now", "utcnow"}
_MODULES = {"time", "datetime"}
_HARMLESS = {"print", "round", "float", "int", "bool", "max", "min", "abs", "str", "info", "debug", "write"}
"""Calls that a number may be given to without becoming the same on all ranks."""


def clock_exit(update: Where | None) -> Where | None:
    """The condition by which a loop around an update of the weights ends after some time; None where none is certain.

    It is certain where the time is compared with a constant, and nothing computed from it is given to a function that
    might exchange it with other ranks.
    """
    tree = parsed(update.file) if update is not None else None
    if update is None or update.line is None or tree is None:
        return None
    branches = exit_branches(update)
    scope = enclosing_function(tree, update.line)
    names = _from_clock(scope)
    if _may_be_exchanged(scope, names):
        return None
    constants = _constants(tree) | _constants(scope)
    conditions = (node for node in own_nodes(scope) if isinstance(node, ast.If | ast.While))
    timed = (node for node in conditions if _is_over(node.test, names, constants))
    line = next((node.lineno for node in timed if node.lineno in branches), None)
    return Where(update.file, line, update.function) if line else None


def _from_clock(scope: ast.AST) -> set[str]:
    """Names that are computed from the time; not those that hold a time, such as when it began."""
    names: set[str] = set()
    assigned = [node for node in own_nodes(scope) if isinstance(node, ast.Assign)]
    for _ in range(3):
        for node in assigned:
            if any(reads_clock(part) or _is_named(part, names) for part in ast.walk(node.value)):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    return names


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


def _is_named(node: ast.AST, names: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def _may_be_exchanged(scope: ast.AST, names: set[str]) -> bool:
    """Whether a function that nobody here knows is given something that was computed from the time."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and not reads_clock(node):
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            parts = [part for argument in given for part in ast.walk(argument)]
            if called_name(node) not in _HARMLESS and any(
                _is_named(p, names) or reads_clock(p) for p in parts
            ):
                return True
    return False


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
    return _is_number(node) or _is_named(node, constants)


def _is_over(test: ast.expr, names: set[str], constants: set[str]) -> bool:
    """Whether a condition compares the time with a number, or with some of those that have a name."""
    if not isinstance(test, ast.Compare) or len(test.comparators) != 1:
        return False
    sides = (test.left, test.comparators[0])
    timed = [any(reads_clock(part) or _is_named(part, names) for part in ast.walk(side)) for side in sides]
    fixed = [_is_fixed(side, constants) for side in sides]
    return (timed[0] and fixed[1]) or (timed[1] and fixed[0])
