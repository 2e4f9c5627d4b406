"""The script's own files, as Python parses them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

from ddpdoctor.model import Where

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Scope: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Module
"""What has variables and lines of its own."""
HARMLESS = {
    *("print", "info", "debug", "write", "format", "str", "len", "range", "enumerate"),
    *("float", "int", "bool", "round", "max", "min", "abs"),
    *("item", "detach", "cpu", "clone", "exp", "sqrt"),
}
"""Calls that a number may be given to without becoming the same on all ranks."""
_DEPTH = 3
"""Assignments between an expression and a variable that is computed from it."""
_MOST_FILES = 300
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


@cache
def modules_of(script: str) -> tuple[str, ...]:
    """The files that a script consists of: itself, and the modules beside and below it, or below the folder of the
    outermost package that it is in, that it imports."""
    files, folder = [script], Path(script).parent
    root = next((it for it in (folder, *folder.parents) if not (it / "__init__.py").is_file()), folder)
    for file in files:  # which grows
        imported = [path for place in dict.fromkeys((folder, root)) for path in _imported(Path(file), place)]
        files += dict.fromkeys(str(path) for path in imported if str(path) not in files and path.is_file())
        if len(files) > _MOST_FILES:
            break
    return tuple(files)


def _imported(file: Path, folder: Path) -> Iterator[Path]:
    """Where a file's imports may lie, seen from a folder that the script imports from."""
    tree = parsed(str(file))
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            names = [(folder, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            root = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else folder
            module = f"{node.module}." if node.module else ""
            names = [(root, module[:-1]), *((root, f"{module}{alias.name}") for alias in node.names)]
        else:
            continue
        for root, name in names:
            path = root.joinpath(*name.split("."))
            yield from (path.with_suffix(".py"), path / "__init__.py")


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


def assigned_to(node: ast.AST) -> list[ast.expr]:
    """What a statement assigns to; nothing of what is no assignment."""
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        return [node.target]
    return node.targets if isinstance(node, ast.Assign) else []


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


def computed_from(scope: ast.AST, origin: Callable[[ast.AST], bool]) -> set[str]:
    """The variables of a function that are computed from such expressions."""
    names: set[str] = set()
    assigned = [node for node in own_nodes(scope) if isinstance(node, ast.Assign)]
    for _ in range(_DEPTH):
        for node in assigned:
            if any(origin(part) or is_named(part, names) for part in ast.walk(node.value)):
                targets = (part for target in node.targets for part in getattr(target, "elts", [target]))
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def may_be_exchanged(scope: ast.AST, names: Collection[str], origin: Callable[[ast.AST], bool]) -> bool:
    """Whether a function that nobody here knows is given such variables or expressions."""
    for call in (node for node in own_nodes(scope) if isinstance(node, ast.Call) and not origin(node)):
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        parts = [part for argument in given for part in ast.walk(argument)]
        if called_name(call) not in HARMLESS and any(is_named(part, names) or origin(part) for part in parts):
            return True
    return False


def is_named(node: ast.AST, names: Collection[str]) -> bool:
    """Whether it is one of these variables."""
    return isinstance(node, ast.Name) and node.id in names
