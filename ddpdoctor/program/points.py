"""Values of the program as points of a graph, and what one is made of."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ddpdoctor.program.chains import Definition
from ddpdoctor.program.files import File, Function
from ddpdoctor.program.known import Origin


@dataclass(frozen=True)
class Context:
    """The call through which a function was entered."""

    call: ast.Call
    file: File
    outer: Context | None
    depth: int = 1

    def __hash__(self) -> int:
        """Of its call alone, by which nearly all differ: it is computed millions of times."""
        return hash((self.call, self.depth))


@dataclass(frozen=True)
class Point:
    """A value: an expression, or a definition of a variable."""

    node: ast.AST | Definition
    file: File
    context: Context | None = None

    def __hash__(self) -> int:
        """Without its file, which follows from its node."""
        return hash((self.node, self.context))

    def at(self, node: ast.AST | Definition) -> Point:
        """Another value of the same function."""
        return Point(node, self.file, self.context)


@dataclass(frozen=True)
class Entity:
    """A function, a class or a module of the program."""

    node: Function | ast.ClassDef | ast.Module
    file: File


Referent: TypeAlias = "Entity | str"
"""What an expression names: something of the program, or a library's by its qualified name."""


class Leaf(NamedTuple):
    """Where a value begins."""

    origin: Origin
    name: str


@dataclass
class Made:
    """What a value is made of."""

    parts: list[Point] = field(default_factory=list)
    leaves: list[Leaf] = field(default_factory=list)
