"""Which lines of the script stand in one loop."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from ddpdoctor.model import Where

_LARGEST = 1 << 20


def shares_loop(inside: Where | None, other: Where | None) -> bool | None:
    """Whether a line stands in a loop that the other stands in, too; None where the script does not show it."""
    if inside is None or other is None or inside.line is None or other.line is None:
        return None
    if inside.file != other.file or _name(inside) != _name(other):
        return None
    loops = _loops(inside.file)
    if loops is None:
        return None
    around = [(first, last) for first, last in loops if first <= inside.line <= last]
    return any(first <= other.line <= last for first, last in around) if around else None


def _name(where: Where) -> str:
    """The function's own name: a stack may leave out the class around it."""
    return (where.function or "").rpartition(".")[2]


@cache
def _loops(file: str) -> tuple[tuple[int, int], ...] | None:
    """The first and last lines of a file's loops; None where it cannot be read as the script that ran."""
    try:
        path = Path(file)
        if path.stat().st_size > _LARGEST:
            return None
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(tree)
        if isinstance(node, ast.For | ast.While | ast.AsyncFor)
    )
