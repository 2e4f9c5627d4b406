"""The script's own files, as Python parses them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

LARGEST = 1 << 20
"""Bytes of a file that is read, and so more than its lines."""


@cache
def parsed(file: str) -> ast.Module | None:
    """A file; None where it cannot be read as the script that ran."""
    try:
        path = Path(file)
        return None if path.stat().st_size > LARGEST else ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return None


def lines(*nodes: ast.stmt | ast.excepthandler) -> range:
    """The lines from the first to the last of these, which stand one behind the other."""
    return range(nodes[0].lineno, (nodes[-1].end_lineno or nodes[-1].lineno) + 1) if nodes else range(0)
