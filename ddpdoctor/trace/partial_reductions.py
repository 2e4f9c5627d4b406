"""Functions that evaluate and reduce one of their metrics over the ranks, and leave another to each rank, by source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import partial

from ddpdoctor.model import Where
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.trace.syntax import (
    called_name,
    computed_from,
    enclosing_function,
    is_named,
    lines,
    may_be_exchanged,
    own_nodes,
    parsed,
)

_METRIC = re.compile(r"loss|acc|correct|right|hit|score|err|nll|ppl|metric", re.IGNORECASE)


def left_local(loop: Where | None, calls: Sequence[Collective]) -> tuple[str, str] | None:
    """A metric that the function around an evaluation loop sums up and gives away as the rank's own number, and the
    word of its name by which a line that prints it is known.

    None where none is certain: where something else than this function communicates, where it reduces no other of
    its sums, and where the sum, or what is made of it, goes to a function that might exchange it.

    Args:
        loop: the evaluation.
        calls: the collectives from its beginning to the use of its result.
    """
    tree = parsed(loop.file) if loop is not None else None
    if loop is None or loop.line is None or tree is None or not calls:
        return None
    scope = enclosing_function(tree, loop.line)
    if isinstance(scope, ast.Module) or not all(_is_inside(call.at, loop.file, scope) for call in calls):
        return None
    away, reduced, local = set(_given_away(scope)), False, None
    for name in _sums(scope, loop.line):
        is_sum = partial(is_named, names=(name,))
        made = {name, *computed_from(scope, is_sum)}
        if may_be_exchanged(scope, made, is_sum):
            reduced = True
        elif made & away:
            local = local or name
    word = _METRIC.search(local or "")
    return (local, word[0]) if reduced and local and word else None


def _is_inside(at: Where | None, file: str, scope: ast.stmt) -> bool:
    return at is not None and at.file == file and at.line in lines(scope)


def _sums(scope: ast.AST, line: int) -> Iterator[str]:
    """Metrics that the loop around a line adds up."""
    loops = (node for node in own_nodes(scope) if isinstance(node, ast.For) and line in lines(node))
    for node in (inner for loop in loops for inner in own_nodes(loop)):
        if (
            isinstance(node, ast.AugAssign)
            and isinstance(node.target, ast.Name)
            and _METRIC.search(node.target.id)
        ):
            yield node.target.id


def _given_away(scope: ast.AST) -> Iterator[str]:
    """Variables that it returns, or prints."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Return) and node.value is not None:
            yield from _names(node.value)
        elif isinstance(node, ast.Call) and called_name(node) in ("print", "info"):
            yield from _names(*node.args)


def _names(*nodes: ast.AST) -> Iterator[str]:
    return (part.id for node in nodes for part in ast.walk(node) if isinstance(part, ast.Name))
