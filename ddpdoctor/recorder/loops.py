"""What drives an iterator: a ``for`` statement, which takes an early end as its own, or something that may not."""

from __future__ import annotations

import dis
import inspect
from functools import lru_cache
from types import CodeType, FrameType

FOR = "for"
"""A ``for`` statement, also through enumerate, zip or tqdm: an early end leaves it."""
CYCLE = "cycle"
"""A ``for`` inside another loop of a generator: an early end begins the next pass, and the user's loop goes on."""
HAND = "hand"
"""``next`` by hand: an early end would be an exception that the script may not expect."""
_EXPECT_THE_END = ("accelerate.data_loader", "lightning.", "pytorch_lightning.", "lightning_fabric.")
"""Modules that call ``next`` and handle StopIteration as the end of the pass."""


def driver(frame: FrameType) -> str:
    """How the code in this frame, which is taking the next item, takes it."""
    if str(frame.f_globals.get("__name__")).startswith(_EXPECT_THE_END):
        return FOR
    return _of_instruction(frame.f_code, frame.f_lasti)


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
