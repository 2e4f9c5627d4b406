"""Lines of a function whose result is another one in each process: random draws, and folders that are listed."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from ddpdoctor.model import Where
from ddpdoctor.trace.syntax import FUNCTIONS, called_name, parsed

_LIBRARIES = frozenset({"torch", "np", "numpy", "random"})
_DRAWS = {
    *(
        "rand",
        "randn",
        "randint",
        "random",
        "randperm",
        "permutation",
        "rand_like",
        "randn_like",
        "randint_like",
    ),
    *("normal", "standard_normal", "uniform", "gauss", "integers", "randrange", "bernoulli", "multinomial"),
    *("shuffle", "choice", "choices", "sample", "random_sample"),
}
_LISTS = frozenset({"listdir", "glob", "iglob", "iterdir", "rglob", "scandir"})


def first_draw(function: Where | None) -> Where | None:
    """The first such line of a function; None where there is none.

    Args:
        function: its first line.
    """
    tree = parsed(function.file) if function is not None else None
    if function is None or tree is None:
        return None
    bodies = (
        node for node in ast.walk(tree) if isinstance(node, FUNCTIONS) and _begins_at(node, function.line)
    )
    line = min((draw for body in bodies for draw in _draws(body)), default=None)
    return Where(function.file, line, function.function) if line is not None else None


def _begins_at(function: ast.FunctionDef | ast.AsyncFunctionDef, line: int | None) -> bool:
    """Python has a function begin at its first decorator."""
    return line in (function.lineno, *(decorator.lineno for decorator in function.decorator_list[:1]))


def _draws(function: ast.AST) -> Iterator[int]:
    sorted_ones = {
        id(argument)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and called_name(call) == "sorted"
        for argument in call.args
    }
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and id(call) not in sorted_ones and _draws_or_lists(call):
            yield call.lineno


def _draws_or_lists(call: ast.Call) -> bool:
    name, root = called_name(call), call.func
    while isinstance(root, ast.Attribute):
        root = root.value
    of_library = isinstance(root, ast.Name) and root.id in _LIBRARIES
    seeded = any(keyword.arg == "generator" for keyword in call.keywords)
    return name in _LISTS or (name in _DRAWS and of_library and not seeded)
