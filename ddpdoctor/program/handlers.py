"""What becomes of an exception that comes to a line: the ``try`` and ``with`` statements around it."""

import ast
from collections.abc import Collection, Iterator
from enum import Enum

from ddpdoctor.model import Where
from ddpdoctor.program.files import TRIES, File, dotted, lines, read


class Way(str, Enum):
    """What becomes of an exception."""

    GOES_ON = "goes on"
    """It stands in a ``finally``, or in the end of a ``with``, which mostly lets it pass."""
    MAY_END = "may end"
    """It stands in an ``except``."""


def way_of(path: str, line: int, tried: int) -> Way | None:
    """What becomes of an exception that came through the line ``tried`` to a function, and that this handles; None
    where its file does not tell. The line is where the function stands."""
    file = read(path)
    ways = [(getattr(it, "lineno", 0), _of_node(it, line, tried)) for it in file.scopes] if file else []
    return max(((start, way) for start, way in ways if way), default=(0, None))[1]


def _of_node(node: ast.AST, line: int, tried: int) -> Way | None:
    if isinstance(node, ast.With | ast.AsyncWith):
        inside = tried in lines(*node.body)
        return Way.GOES_ON if inside and node.lineno <= line < node.body[0].lineno else None
    if not isinstance(node, TRIES):
        return None
    if tried in lines(*node.body) and any(line in lines(handler) for handler in node.handlers):
        return Way.MAY_END
    before = [*node.body, *node.handlers, *node.orelse]
    return Way.GOES_ON if tried in lines(*before) and line in lines(*node.finalbody) else None


def is_caught(where: Where, names: Collection[str]) -> bool:
    """Whether a line stands in a ``try`` that catches one of these exceptions, and does not always raise again, or in
    a ``with contextlib.suppress``."""
    return bool(catching(where, names))


def catching(where: Where, names: Collection[str] | None = None) -> list[Where]:
    """The lines that catch one of these exceptions in the function of a line that raises it, and do not always raise
    again, the innermost first; that catch any, without names."""
    file = read(where.file)
    if file is None:
        return []
    around = (it for it in reversed(file.statements_at(where.line)) if isinstance(it, (*TRIES, ast.With)))
    inside = (it for it in around if where.line in lines(*it.body))
    return [file.where(catches) for it in inside for catches in _catching(file, it, names)]


def _catching(
    file: File, node: ast.AST, names: Collection[str] | None
) -> Iterator[ast.ExceptHandler | ast.expr]:
    if isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        yield from (call for call in calls if _suppresses(file, call) and _are_any(call.args, names))
        return
    for handler in getattr(node, "handlers", ()):
        kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        if not isinstance(handler.body[-1], ast.Raise) and (handler.type is None or _are_any(kinds, names)):
            yield handler


def _suppresses(file: File, call: ast.Call) -> bool:
    name = dotted(call.func)
    imported = {
        alias.asname or alias.name
        for it in file.imports
        if isinstance(it, ast.ImportFrom) and it.module == "contextlib"
        for alias in it.names
        if alias.name == "suppress"
    }
    return name == "contextlib.suppress" or name in imported


def _are_any(kinds: Collection[ast.expr | None], names: Collection[str] | None) -> bool:
    return names is None or any(isinstance(kind, ast.Name) and kind.id in names for kind in kinds)


def cleanups(path: str) -> Iterator[tuple[range, range]]:
    """The lines of what may fail, and of what then runs before its exception goes on."""
    file = read(path)
    for node in file.scopes if file else ():
        if isinstance(node, TRIES):
            again = (handler.body for handler in node.handlers if _raises_again(handler))
            yield from ((lines(*node.body), lines(*cleanup)) for cleanup in (*again, node.finalbody))
            yield from ((lines(*handler.body), lines(*node.finalbody)) for handler in node.handlers)


def _raises_again(handler: ast.ExceptHandler) -> bool:
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None
