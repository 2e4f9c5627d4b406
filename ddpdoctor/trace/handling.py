"""Where a line stands that runs while an exception is under way, and whether that exception goes on from there."""

from __future__ import annotations

import ast
from enum import Enum

from ddpdoctor.trace.syntax import lines, parsed

_TRY = (ast.Try, getattr(ast, "TryStar", ast.Try))  # the second is new in Python 3.11


class Way(str, Enum):
    """What becomes of an exception."""

    GOES_ON = "goes on"
    """It stands in a ``finally``, or in the end of a ``with``, which mostly lets it pass."""
    MAY_END = "may end"
    """It stands in an ``except``."""


def way_of(file: str, line: int, tried: int) -> Way | None:
    """What becomes of an exception that a function handles; None where its file does not tell.

    Args:
        file: of that function.
        line: where the function stands.
        tried: the line through which the exception came to it.
    """
    tree = parsed(file)
    nodes = ast.walk(tree) if tree else ()
    found = ((getattr(node, "lineno", 0), _of_node(node, line, tried)) for node in nodes)
    return max(((start, way) for start, way in found if way), default=(0, None))[1]


def _of_node(node: ast.AST, line: int, tried: int) -> Way | None:
    if isinstance(node, ast.With | ast.AsyncWith):
        inside = tried in lines(*node.body)
        return Way.GOES_ON if inside and node.lineno <= line < node.body[0].lineno else None
    if not isinstance(node, _TRY):
        return None
    handlers = [one for one in node.handlers if tried in lines(*node.body) and line in lines(one)]
    if handlers:
        return Way.MAY_END
    before = [*node.body, *node.handlers, *node.orelse]
    return Way.GOES_ON if tried in lines(*before) and line in lines(*node.finalbody) else None
