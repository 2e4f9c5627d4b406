"""Where a line stands that runs while an exception is under way, and whether that exception goes on from there."""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from enum import Enum
from pathlib import Path

from ddpdoctor.blame.frames import Frame, function, is_of_script, where_of
from ddpdoctor.blame.place import PlaceKind
from ddpdoctor.blame.rank_state import RankState
from ddpdoctor.failures import VICTIM, says
from ddpdoctor.model import Where
from ddpdoctor.trace.loop_exits import last_update
from ddpdoctor.trace.recording import Recording
from ddpdoctor.trace.source_loops import is_after_loops, name_of, share_a_loop
from ddpdoctor.trace.syntax import called_name, lines, parsed

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
    ways = ((getattr(node, "lineno", 0), _of_node(node, line, tried)) for node in nodes)
    return max(((start, way) for start, way in ways if way), default=(0, None))[1]


def _of_node(node: ast.AST, line: int, tried: int) -> Way | None:
    if isinstance(node, ast.With | ast.AsyncWith):
        inside = tried in lines(*node.body)
        return Way.GOES_ON if inside and node.lineno <= line < node.body[0].lineno else None
    if not isinstance(node, _TRY):
        return None
    handlers = [handler for handler in node.handlers if tried in lines(*node.body) and line in lines(handler)]
    if handlers:
        return Way.MAY_END
    before = [*node.body, *node.handlers, *node.orelse]
    return Way.GOES_ON if tried in lines(*before) and line in lines(*node.finalbody) else None


def is_caught(where: Where, names: Collection[str]) -> bool:
    """Whether a line stands in a ``try`` that catches one of these exceptions, and does not always raise again, or in
    a ``with contextlib.suppress``."""
    tree = parsed(where.file)
    around = (node for node in ast.walk(tree) if isinstance(node, (*_TRY, ast.With))) if tree else ()
    return any(where.line in lines(*node.body) and _catches(node, names) for node in around)


def _catches(node: ast.AST, names: Collection[str]) -> bool:
    if isinstance(node, ast.With):
        calls = [item.context_expr for item in node.items if isinstance(item.context_expr, ast.Call)]
        kinds = [kind for call in calls if called_name(call) == "suppress" for kind in call.args]
        return any(_is_one_of(kind, names) for kind in kinds)
    handlers = [it for it in getattr(node, "handlers", ()) if not isinstance(it.body[-1], ast.Raise)]
    return any(handler.type is None or _is_one_of(handler.type, names) for handler in handlers)


def _is_one_of(kind: ast.expr, names: Collection[str]) -> bool:
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(isinstance(kind, ast.Name) and kind.id in names for kind in kinds)


def ends_its_work(state: RankState, recording: Recording | None) -> bool:
    """Whether the exception that a rank handles ended its work, and is not what it works on with, as one does that
    finds no checkpoint."""
    process = state.process
    if process is None or process.handles is None or state.place is None:
        return False
    handled = process.handles
    in_collective = state.place.kind in (PlaceKind.COLLECTIVE, PlaceKind.DESTROY)
    if not in_collective or says(f"{handled.type}: {handled.message}", *VICTIM):
        return False
    inside = _since(process.stack, handled.holder)
    if inside is None:
        return False
    way = way_of(handled.holder.file, handled.holder.line, handled.tried.line)
    if way is Way.GOES_ON:
        return True
    update = last_update(recording) if recording else None
    if way is not Way.MAY_END or update is None:
        return False
    trains = any(function(frame) == name_of(update) for frame in inside if is_of_script(frame))
    came = any(share_a_loop(update, where_of(frame)) for frame in handled.frames)
    return came and not trains and is_after_loops(update, where_of(handled.holder))


def _since(stack: Sequence[Frame], holder: Frame) -> Sequence[Frame] | None:
    """The frames below the one that handles it; None where that is not on the stack."""
    position = next((number for number, frame in enumerate(stack) if _same(frame, holder)), None)
    return None if position is None else stack[position + 1 :]


def _same(frame: Frame, other: Frame) -> bool:
    """Whether two looks, which name files and functions in ways of their own, saw one place."""
    name = Path(frame.file).name == Path(other.file).name
    return name and frame.line == other.line and function(frame) == function(other)
