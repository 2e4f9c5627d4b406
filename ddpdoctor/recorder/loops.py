"""What drives an iterator: a ``for`` statement, which takes an early end as its own, or something that may not."""

from __future__ import annotations

import ast
import dis
import gc
import inspect
import linecache
import sys
from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from types import CellType, CodeType, FrameType, GeneratorType
from typing import Any

FOR = "for"
"""A ``for`` statement, also through enumerate, zip or tqdm: an early end leaves it."""
CYCLE = "cycle"
"""A ``for`` inside another loop of a generator: an early end may begin the next pass, and the user's loop goes on."""
HAND = "hand"
"""``next`` by hand, or a call that takes all: an early end would be an exception that the script may not expect."""
_EXPECT_THE_END = ("accelerate.data_loader", "lightning.", "pytorch_lightning.", "lightning_fabric.")
"""Modules that call ``next`` and handle StopIteration as the end of the pass."""
_HOLDERS = (FrameType, CellType, dict)
"""What may hold an iterator of which everything is taken, beside generators, ``enumerate`` and arguments of calls;
``zip`` and ``islice`` may stop earlier."""


def driver(frame: FrameType) -> str:
    """How the code in this frame, which is taking the next item, takes it."""
    code, above = frame.f_code, frame.f_back
    expects = expects_the_end(frame)
    if code.co_name == "__next__" and above is not None and not expects:
        return driver(above)  # an iterator around ours: its end is ours
    taken_by = FOR if expects else _of_instruction(code, frame.f_lasti)
    if taken_by == FOR and code.co_flags & inspect.CO_GENERATOR and above is not None:
        return driver(above)  # a generator around ours, which ends with it
    return taken_by


def expects_the_end(frame: FrameType) -> bool:
    """Whether this is code of a framework, which takes an early end for what it is."""
    return str(frame.f_globals.get("__name__")).startswith(_EXPECT_THE_END)


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
    here = next((instruction for instruction in instructions if instruction.offset == offset), None)
    end = here.argval if here is not None and here.opname == "FOR_ITER" else offset
    begins = [
        instruction.offset
        for instruction in instructions
        if instruction.offset < offset and instruction.opname in ("GET_ITER", "GET_YIELD_FROM_ITER")
    ]
    begin = begins[-1] if begins else offset
    # From Python 3.12 on, what cleans up after a yield from stands at the end, and jumps back to it.
    jumps = (
        jump
        for before, jump in pairwise(instructions)
        if jump.offset >= end and "JUMP" in jump.opname and before.opname != "CLEANUP_THROW"
    )
    return any(isinstance(jump.argval, int) and jump.argval <= begin for jump in jumps)


def takes_all(frame: FrameType, iterator: Any) -> bool:
    """Whether the loop in this frame, which is taking the next item of an iterator, has no other way out than its end.

    An exception from what it calls is one that cannot be seen.
    """
    if not _is_held_by_loops(iterator):
        return False
    above: FrameType | None = frame
    while above is not None:
        code = above.f_code
        takes_all = _of_instruction(code, above.f_lasti) == FOR and not _is_left(
            code.co_filename, above.f_lineno
        )
        if not (expects_the_end(above) or takes_all):
            return False
        if not code.co_flags & inspect.CO_GENERATOR:
            return True
        above = above.f_back
    return False


def _is_held_by_loops(iterator: Any) -> bool:
    waiting, loader = [iterator], sys.modules["torch.utils.data"].DataLoader
    for held in waiting:
        for holder in gc.get_referrers(held):
            if isinstance(holder, GeneratorType | enumerate | tuple) and len(waiting) < 20:
                waiting.append(holder)
            elif holder is not waiting and not isinstance(holder, (*_HOLDERS, loader)):
                return False
    return True


@lru_cache(maxsize=1024)
def _is_left(file: str, line: int) -> bool:
    """Whether the ``for`` on a line may be left before its end; True where its source cannot be read."""
    loops = [node for node in _around(file, line) if isinstance(node, ast.For) and _spans(node.iter, line)]
    return len(loops) != 1 or _leaves(loops[0].body)


def _leaves(body: Iterable[ast.AST], *, inner: bool = False) -> bool:
    """Whether statements leave the loop around them; a break of a loop inside it does not."""
    return any(_is_way_out(node, inner=inner) for node in body)


def _is_way_out(node: ast.AST, *, inner: bool) -> bool:
    if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
        return False
    if isinstance(node, ast.For | ast.While):
        return _leaves(node.body, inner=True) or _leaves(node.orelse, inner=inner)
    leaves = isinstance(node, ast.Return | ast.Raise) or (isinstance(node, ast.Break) and not inner)
    return leaves or _leaves(ast.iter_child_nodes(node), inner=inner)


def _around(file: str, line: int) -> list[ast.AST]:
    """What spans a line of a source file; nothing where that cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if _spans(node, line)]


def _spans(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", None) or 0)
