"""What drives an iterator: a ``for`` statement, which takes an early end as its own, or something that may not."""

import dis
import gc
import inspect
import sys
from collections.abc import Iterator, Sequence
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
    end = next((it.argval for it in instructions if it.offset == offset and it.opname == "FOR_ITER"), offset)
    begins = [it.offset for it in instructions if it.opname in ("GET_ITER", "GET_YIELD_FROM_ITER")]
    begin = max((it for it in begins if it < offset), default=offset)
    # From Python 3.12 on, what cleans up after a yield from stands at the end, and jumps back to it.
    jumps = (
        jump
        for before, jump in pairwise(instructions)
        if jump.offset >= end and "JUMP" in jump.opname and before.opname != "CLEANUP_THROW"
    )
    return any(isinstance(jump.argval, int) and jump.argval <= begin for jump in jumps)


def takes_all(frame: FrameType, iterator: Any) -> bool:
    """Whether the loop in this frame, which is taking the next item of an iterator, has no other way out than its end.
    An exception from what it calls is one that cannot be seen."""
    if not _is_held_by_loops(iterator):
        return False
    above: FrameType | None = frame
    while above is not None:
        code = above.f_code
        takes_all = _of_instruction(code, above.f_lasti) == FOR and not is_left(code, above.f_lasti)
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
def is_left(code: CodeType, offset: int) -> bool:
    """Whether the ``for`` at an instruction may be left before its end: whether its body, or what handles an exception
    there, returns, raises, or comes to what stands around the loop without going through its head again."""
    instructions = [it for it in dis.get_instructions(code) if it.opname != "CACHE"]
    number_of = {instruction.offset: number for number, instruction in enumerate(instructions)}
    head = first = number_of[offset]
    if instructions[head].opname != "FOR_ITER":
        return True
    while instructions[first - 1].opname == "EXTENDED_ARG":
        first -= 1
    handlers = getattr(dis.Bytecode(code), "exception_entries", ())
    around = {handler.target for handler in handlers if handler.start <= offset < handler.end}
    handlers = [handler for handler in handlers if handler.target not in around]
    waiting = [head + 1]
    for number in waiting:  # which grows
        now = instructions[number]
        if number < first or _leaves(instructions, number):
            return True
        after = [number_of[target] for target in _next(instructions, number) if target in number_of]
        after += [number_of[it.target] for it in handlers if it.start <= now.offset < it.end]
        waiting += [it for it in dict.fromkeys(after) if it not in waiting and not first <= it <= head]
    return False


def _leaves(instructions: Sequence[dis.Instruction], number: int) -> bool:
    """Whether a function returns at an instruction, or raises; a test of what is certain does not."""
    name = instructions[number].opname
    is_assertion = name == "RAISE_VARARGS" and any(
        "ASSERTION" in f"{it.opname} {it.argrepr}".upper() for it in instructions[max(0, number - 8) : number]
    )
    return (name.startswith("RETURN_") and name != "RETURN_GENERATOR") or (
        name == "RAISE_VARARGS" and not is_assertion
    )


def _next(instructions: Sequence[dis.Instruction], number: int) -> Iterator[int]:
    """The offsets of what may come after an instruction."""
    now = instructions[number]
    if now.opcode in dis.hasjrel or now.opcode in dis.hasjabs:
        yield now.argval
    goes_on = "JUMP" not in now.opname or "IF" in now.opname
    if goes_on and now.opname not in ("RERAISE", "RAISE_VARARGS") and number + 1 < len(instructions):
        yield instructions[number + 1].offset
