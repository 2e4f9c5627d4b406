"""Which expressions have the same value, as two that are put together alike from the same values have."""

from __future__ import annotations

import ast

from ddpdoctor.program.chains import Definition
from ddpdoctor.program.flow import Flow
from ddpdoctor.program.index import Point, where_of
from ddpdoctor.program.known import is_pure, origin_of

_DEEPEST = 12
"""Steps by which the identity of a value is followed."""


def identity(flow: Flow, point: Point, depth: int = 0) -> str:
    """A text that is the same for two values which are put together alike from the same."""
    node = point.node
    if isinstance(node, ast.Constant):
        return repr(node.value)
    inner = [] if depth > _DEEPEST else flow.copies(point)
    if inner:
        return "|".join(sorted({identity(flow, it, depth + 1) for it in inner}))
    at = where_of(point)
    place = f"{at.file}:{at.line}:{getattr(node, 'key', '')}"
    if depth > _DEEPEST or isinstance(node, Definition):
        return place
    if isinstance(node, ast.Call):
        called = flow.called(point)
        if not called or not all(isinstance(it, str) and is_pure(it) and not origin_of(it) for it in called):
            return f"{place}:{node.col_offset}"
        parts: list[ast.AST] = [node.func, *node.args, *(each.value for each in node.keywords)]
    else:
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    inside = ",".join(identity(flow, point.at(part), depth + 1) for part in parts)
    named = getattr(node, "attr", "") or getattr(node, "id", "")
    return f"{type(node).__name__}:{named}({inside})"
