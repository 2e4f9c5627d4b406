"""The conditions of a function, read from its code: where they may lead, and which values they look at.

From the code and not from the source: that may have changed since, and to parse it can print warnings.
"""

import dis
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

from .digest import is_plain, unseen
from .events.process import RETURNED, Plain

_LARGEST = 40_000
"""Bytes of code; a function of more is told of without its conditions."""
_MOST_VALUES = 12
"""Of a condition."""
_LONGEST = 80
"""Characters of a text."""
_LEAVES = ("RETURN_VALUE", "RETURN_CONST")
_RAISES = ("RAISE_VARARGS", "RERAISE")
_VARIABLE = re.compile(r"(?:LOAD|STORE)(?=_(?:FAST|NAME|GLOBAL|DEREF|CLASSDEREF|CLOSURE))")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
_TRANSPARENT = ("CACHE", "PRECALL", "COPY_FREE_VARS", "NOP", "PUSH_NULL", "TO_BOOL", "EXTENDED_ARG")

Path = tuple[str, tuple[tuple[str, Any], ...]]
"""A variable and what is taken of it: ``("cfg", (("[]", "rank"),))``, ``("self", ((".", "best"),))``."""


@dataclass(frozen=True)
class Branches:
    """The conditions of one code object."""

    next: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    """The lines that may come after each."""
    paths: Mapping[int, Mapping[str, Path]] = field(default_factory=dict)
    """What each looks at, by how the script writes it."""


def branches_of(code: CodeType) -> Branches:
    return Branches() if len(code.co_code) > _LARGEST else _Reader(code).read()


class _Reader:
    def __init__(self, code: CodeType) -> None:
        self._instructions = [it for it in dis.get_instructions(code) if it.opname != "CACHE"]
        self._index = {it.offset: number for number, it in enumerate(self._instructions)}
        starts = [(offset, line) for offset, line in dis.findlinestarts(code) if line is not None]
        self._offsets, self._lines = [offset for offset, _ in starts], [line for _, line in starts]
        self._starts = set(self._offsets)

    def read(self) -> Branches:
        following: dict[int, set[int]] = defaultdict(set)
        for number, instruction in enumerate(self._instructions):
            if (line := self._line(instruction)) is not None and _decides(instruction):
                following[line].update(self._after(number, line))
        branches = {line: tuple(sorted(after)) for line, after in following.items() if len(after) > 1}
        return Branches(branches, self._paths(branches))

    def _line(self, instruction: dis.Instruction) -> int | None:
        at = bisect_right(self._offsets, instruction.offset) - 1
        return self._lines[at] if at >= 0 else None

    def _after(self, number: int, line: int) -> Iterator[int]:
        """The first other lines on the ways from an instruction: Python tells of a line at its first instruction, and
        where a loop begins anew."""
        waiting, visited = [(number, False)], set[int]()
        while waiting:
            number, again = waiting.pop()
            if number in visited or number >= len(self._instructions):
                continue
            visited.add(number)
            instruction = self._instructions[number]
            here = self._line(instruction)
            if here not in (None, line) and (again or instruction.offset in self._starts):
                yield here or 0
            elif instruction.opname in _LEAVES:
                yield RETURNED
            elif instruction.opname not in _RAISES:
                waiting += [(after, after < number) for after in self._next(number, instruction)]

    def _next(self, number: int, instruction: dis.Instruction) -> Iterator[int]:
        jumps = "JUMP" in instruction.opname or instruction.opname in ("FOR_ITER", "SEND")
        if jumps and instruction.argval in self._index:
            yield self._index[instruction.argval]
        if not jumps or _decides(instruction):
            yield number + 1

    def _paths(self, branches: Mapping[int, object]) -> dict[int, dict[str, Path]]:
        """What the code of each of these lines loads: variables, their attributes and constant keys."""
        paths: dict[int, dict[str, Path]] = {line: {} for line in branches}
        held: list[Path] = []
        key: Any = None
        for instruction in self._instructions:
            line, name = self._line(instruction), instruction.opname
            if line not in paths or name in _TRANSPARENT:
                continue
            if loaded := [variable for does, variable in variables_in(instruction) if does == "LOAD"]:
                held = [(variable, ()) for variable in loaded if variable.isidentifier()]
            elif name.startswith(_ATTRIBUTES) and held:
                variable, steps = held.pop()
                held.append((variable, (*steps, (".", instruction.argval))))
            elif name == "LOAD_CONST" and type(instruction.argval) in (str, int):
                key = instruction.argval
                continue
            elif name == "BINARY_SUBSCR" and key is not None and held:
                variable, steps = held.pop()
                held.append((variable, (*steps, ("[]", key))))
            else:
                held = []
            key = None
            paths[line].update((_text(path), path) for path in held)
        return paths


def _decides(instruction: dis.Instruction) -> bool:
    name = instruction.opname
    return name == "FOR_ITER" or ("JUMP" in name and "IF" in name)


def variables_in(instruction: dis.Instruction) -> Iterator[tuple[str, str]]:
    """``LOAD`` or ``STORE`` with each variable, in order: from Python 3.13 on one instruction may be about two."""
    names = instruction.argval
    return zip(
        _VARIABLE.findall(instruction.opname), names if isinstance(names, tuple) else (names,), strict=False
    )


def _text(path: Path) -> str:
    variable, steps = path
    return variable + "".join(f".{key}" if how == "." else f"[{key!r}]" for how, key in steps)


def values_at(torch: Any, paths: Mapping[str, Path], frame: Any) -> dict[str, Plain]:
    """The plain values that a condition looks at, by its paths, in the frame that comes to it; runs no script code."""
    values: dict[str, Plain] = {}
    for text, (variable, steps) in paths.items():
        value = frame.f_locals.get(variable, frame.f_globals.get(variable, _NONE))
        for how, key in steps:
            value = _part(value, how, key)
        plain = _plain(torch, value)
        if plain is not _NONE and len(values) < _MOST_VALUES:
            values[text] = plain
    return values


_NONE: Any = object()
"""No plain value."""


def _part(value: Any, how: str, key: Any) -> Any:
    """An attribute that an object has of its own, or what a dictionary, a list or a tuple holds."""
    if how == "[]":
        if type(value) is dict:
            return value.get(key, _NONE)
        held = type(value) in (list, tuple) and type(key) is int and -len(value) <= key < len(value)
        return value[key] if held else _NONE
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return _NONE
    return attributes.get(key, _NONE) if type(attributes) is dict else _NONE


def _plain(torch: Any, value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 63 else _NONE
    if kind is str:
        return value[:_LONGEST]
    if kind.__module__ == "numpy" and kind.__name__.startswith(("float", "int", "bool")):
        return value.item() if getattr(value, "ndim", 1) == 0 else _NONE
    if kind is torch.Tensor and value.device.type == "cpu" and value.numel() == 1 and is_plain(torch, value):
        with unseen(torch):
            number = value.detach().item()
        return _NONE if isinstance(number, complex) else number
    return _NONE
