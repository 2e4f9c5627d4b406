"""What drives an iterator: a ``for`` statement, which takes an early end as its own, or something that may not."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
from functools import lru_cache
from types import CodeType, FrameType

FOR = "for"
"""A ``for`` statement, also through enumerate, zip or tqdm: an early end leaves it."""
CYCLE = "cycle"
"""A ``for`` inside another loop of a generator, or ``next`` by code that handles its end: an early end may begin the
next pass, and the user's loop goes on."""
HAND = "hand"
"""``next`` by hand: an early end would be an exception that the script may not expect."""
_EXPECT_THE_END = ("accelerate.data_loader", "lightning.", "pytorch_lightning.", "lightning_fabric.")
"""Modules that call ``next`` and handle StopIteration as the end of the pass."""


def driver(frame: FrameType) -> str:
    """How the code in this frame, which is taking the next item, takes it."""
    if str(frame.f_globals.get("__name__")).startswith(_EXPECT_THE_END):
        return FOR
    if frame.f_code.co_name == "__next__" and frame.f_back is not None:
        return driver(frame.f_back)  # an iterator around ours: its end is ours
    found = _of_instruction(frame.f_code, frame.f_lasti)
    return CYCLE if found == HAND and _handles_the_end(frame.f_code.co_filename, frame.f_lineno) else found


@lru_cache(maxsize=4096)
def _of_instruction(code: CodeType, offset: int) -> str:
    if dis.opname[code.co_code[offset]] not in ("FOR_ITER", "SEND", "YIELD_FROM"):
        return HAND
    if not code.co_flags & inspect.CO_GENERATOR:
        return FOR
    return CYCLE if _inside_a_loop(code, offset) else FOR


def _inside_a_loop(code: CodeType, offset: int) -> bool:
    """Whether code after this loop jumps back to before it."""
    instructions = list(dis.get_instructions(code))
    here = next((one for one in instructions if one.offset == offset), None)
    end = here.argval if here is not None and here.opname == "FOR_ITER" else offset
    begins = [one.offset for one in instructions if one.offset < offset and one.opname == "GET_ITER"]
    begin = begins[-1] if begins else offset
    jumps = (one for one in instructions if one.offset >= end and "JUMP" in one.opname)
    return any(isinstance(jump.argval, int) and jump.argval <= begin for jump in jumps)


@lru_cache(maxsize=1024)
def _handles_the_end(file: str, line: int) -> bool:
    """Whether the source around a line catches StopIteration, or gives ``next`` a value to return instead."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return False
    around = [node for node in ast.walk(tree) if _spans(node, line)]
    handled = any(
        isinstance(node, ast.Try) and _spans_any(node.body, line) and _catches(node) for node in around
    )
    return handled or any(_gives_a_default(node) for node in around)


def _spans(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)


def _spans_any(nodes: list[ast.stmt], line: int) -> bool:
    return any(_spans(node, line) for node in nodes)


def _catches(node: ast.Try) -> bool:
    named = [part for handler in node.handlers if handler.type for part in ast.walk(handler.type)]
    return any(isinstance(part, ast.Name) and part.id == "StopIteration" for part in named)


def _gives_a_default(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "next"
        and len(node.args) == 2
    )
