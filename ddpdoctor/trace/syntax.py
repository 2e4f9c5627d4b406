"""The script's own files, as Python parses them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

from ddpdoctor.model import Where

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
"""What has variables and lines of its own."""
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


def enclosing_function(tree: ast.Module, line: int) -> Scope:
    """The innermost function in whose body a line stands; the module where it stands in none."""
    around = (function for function in _functions(tree) if line in lines(*function.body))
    return max(around, key=lambda function: function.lineno, default=tree)


@cache
def _functions(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, FUNCTIONS)]


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """What stands in a function, or a module, and in no function or class inside."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield child
            yield from own_nodes(child)


def called_name(call: ast.Call) -> str:
    """The name of the function, or of the method, that is called; empty where it has none."""
    return str(getattr(call.func, "attr", getattr(call.func, "id", "")))


def calls_of(tree: ast.Module, name: str) -> list[int]:
    """The lines that call a function of this name: one of the file's own is known by its name alone."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return [call.lineno for call in calls if called_name(call) == name]


def calls_on(at: Where | None, name: str) -> bool:
    """Whether a function of this name is called on a line."""
    tree = parsed(at.file) if at is not None else None
    if at is None or tree is None:
        return False
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.lineno == at.line)
    return any(getattr(call.func, "id", "") == name for call in calls)
