"""A file of the user's: the program's nodes with their text, and edits that leave everything else as it is."""

from __future__ import annotations

import ast
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ddpdoctor.fix import CannotPatch
from ddpdoctor.fix.edits import Edit, Text, apply_edits
from ddpdoctor.model import Where
from ddpdoctor.program import Expression, Program
from ddpdoctor.program.files import FUNCTIONS, LOOPS
from ddpdoctor.program.index import Point

if TYPE_CHECKING:
    from ddpdoctor.fix.case import Project

Node: TypeAlias = Any
"""A node of :mod:`ast`."""
COMPOUND = (*LOOPS, *FUNCTIONS, ast.If, ast.With, ast.AsyncWith, ast.Try, ast.ClassDef, ast.Match)
_VERSION = ".".join(platform.python_version_tuple()[:2])


class Nodes(Text):
    """One file of Python, by its absolute path, as a part of a program, whose other files the project gives;
    CannotPatch as above, or where Python cannot parse it. What patches are given is a
    :class:`~ddpdoctor.fix.writing.Source`."""

    def __init__(self, path: Path, project: Project, program: Program, raw: bytes | None = None) -> None:
        super().__init__(path, raw)
        self.project, self.program = project, program
        file = program.files.get(project.name(path))
        if file is None:
            raise CannotPatch(f"{path.name} has syntax that Python {_VERSION} does not know")
        self.file = file
        self.tree: Node = file.tree
        self.lacks_group: bool | None = None
        """Whether the program also runs without a process group, once somebody asked."""
        self._edits: list[Edit] = []

    # -- what stands where --------------------------------------------------------------------------------

    @cached_property
    def _line_starts(self) -> list[int]:
        return list(accumulate((len(line) + 1 for line in self.text.split("\n")), initial=0))

    def _offset(self, line: int, column: int) -> int:
        begin = self._line_starts[line - 1]
        text = self.text[begin : self._line_starts[line] - 1]
        return begin + (column if text.isascii() else len(text.encode()[:column].decode()))

    def span(self, node: Node) -> tuple[int, int]:
        """Where it begins and ends in the text, without parentheses around it."""
        return self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)

    def code(self, node: Node) -> str:
        """The text of it."""
        if any(isinstance(parent, ast.JoinedStr) for parent in self.above(node)):
            return ast.unparse(node)  # before Python 3.12, the places in f-strings are not known
        begin, end = self.span(node)
        return self.text[begin:end]

    def margin(self, node: Node) -> str:
        """The indentation of its first line."""
        line = self.text[self._line_starts[node.lineno - 1] :]
        return line[: len(line) - len(line.lstrip(" \t"))]

    @cached_property
    def indent(self) -> str:
        """By how much the file indents a block."""
        inner = ((node, node.body[0]) for node in self.all(*COMPOUND) if hasattr(node, "body"))
        margins = (self.margin(first).removeprefix(self.margin(node)) for node, first in inner)
        return next(filter(None, margins), "    ")

    def all(self, *kinds: Any, within: Node | Sequence[Node] = ()) -> list[Node]:
        """All nodes of these kinds, in their order in the text."""
        parts = within if isinstance(within, Sequence) else (within,)
        nodes = (node for part in parts for node in ast.walk(part)) if parts else self.file.scopes
        return sorted((node for node in nodes if isinstance(node, kinds)), key=self.span)

    def on_line(self, line: int | None, *kinds: Any) -> list[Node]:
        """Nodes of these kinds whose lines include this one, the narrowest first."""
        nodes = [node for node in self.all(*kinds) if node.lineno <= (line or 0) <= node.end_lineno]
        return sorted(nodes, key=lambda node: node.end_lineno - node.lineno)

    def where(self, node: Node) -> Where:
        """Its line, as the program names it."""
        return self.file.where(node)

    # -- what is around it --------------------------------------------------------------------------------

    def above(self, node: Node) -> Iterator[Node]:
        """Its parent, the parent of that, up to the module."""
        return self.file.above(node)

    def within_function(self, node: Node) -> Iterator[Node]:
        """What is around it in its function, the innermost first."""
        return takewhile(lambda it: not isinstance(it, FUNCTIONS), self.above(node))

    def enclosing(self, node: Node, *kinds: Any) -> Node | None:
        """The nearest of these kinds around it."""
        return next((parent for parent in self.above(node) if isinstance(parent, kinds)), None)

    def scope(self, node: Node) -> Node:
        """The function that it is in, or the module."""
        return self.enclosing(node, *FUNCTIONS) or self.tree

    def statement(self, node: Node) -> Node:
        """The statement that it is, or is part of, and that begins its line."""
        for parent in (node, *self.above(node)):
            if isinstance(parent, ast.stmt) and self.begins_line(parent):
                return parent
        raise CannotPatch(f"line {node.lineno} of {self.path.name} begins with another statement")

    def begins_line(self, statement: Node) -> bool:
        """Whether nothing stands before it in its line."""
        begin = self.span(statement)[0]
        return not self.text[self._line_starts[statement.lineno - 1] : begin].strip()

    def block(self, statement: Node) -> list[Node]:
        """The statements of the block in which a statement stands."""
        blocks = (value for _, value in ast.iter_fields(self.file.parents[statement]))
        return next((it for it in blocks if isinstance(it, list) and statement in it), [statement])

    def before(self, statement: Node) -> list[Node]:
        """The statements before it in its block."""
        block = self.block(statement)
        return block[: block.index(statement)]

    def behind(self, statement: Node) -> list[Node]:
        """The statements behind it in its block."""
        block = self.block(statement)
        return block[block.index(statement) + 1 :]

    def statement_at(self, line: int | None) -> Node:
        """The innermost statement at this line; CannotPatch where there is none."""
        nodes = self.on_line(line, ast.stmt)
        simple = [node for node in nodes if not isinstance(node, COMPOUND)]
        for node in simple or nodes:
            return self.statement(node)
        raise CannotPatch(f"line {line} of {self.path.name} is no statement")

    # -- what the program says ----------------------------------------------------------------------------

    def point(self, node: Node) -> Point:
        """It, as a value of the program."""
        return Point(node, self.file)

    def expression(self, node: Node) -> Expression:
        """It, as the program is asked about it."""
        return Expression(self.program, self.file, node)

    # -- edits --------------------------------------------------------------------------------------------

    def replace(self, node: Node, code: str) -> None:
        """Put this in place of an expression; CannotPatch where its place in an f-string is not known."""
        begin, end = self.span(node)
        if self.code(node) != self.text[begin:end]:
            raise CannotPatch(f"what would change at line {node.lineno} is in an f-string")
        self._edits.append(Edit(begin, end, code))

    def insert_before(self, statement: Node, code: str) -> None:
        """New lines before a statement and the comments right above it, indented as it is."""
        begin = self._line_starts[self._first_line(statement) - 1]
        self.replace_span(begin, begin, self._lines(code, self.margin(statement)))

    def _first_line(self, statement: Node) -> int:
        """The line in which a statement begins, with its decorators and the comments right above it."""
        first: int = (getattr(statement, "decorator_list", None) or [statement])[0].lineno
        last = max((node.end_lineno for node in self.before(statement)), default=0)
        while first - 1 > last and self._line(first - 1).startswith("#"):
            first -= 1
        return first

    def _line(self, number: int) -> str:
        return self.text[self._line_starts[number - 1] : self._line_starts[number] - 1].strip()

    def insert_after(self, statement: Node, code: str) -> None:
        """New lines behind a statement, indented as it is."""
        begin = min(self._line_starts[statement.end_lineno], len(self.text))
        lines = self._lines(code, self.margin(statement))
        if self.text and begin == len(self.text) and not self.text.endswith("\n"):
            lines = "\n" + lines.removesuffix("\n")
        self._edits.append(Edit(begin, begin, lines))

    def insert_first(self, compound: Node, code: str) -> None:
        """New lines at the beginning of a loop's or the like's body; CannotPatch if that shares its header's line."""
        first = compound.body[0]
        if not self.begins_line(first):
            raise CannotPatch(f"line {compound.lineno} has its body in one line")
        line = self._first_line(first)
        while line - 1 > compound.lineno and self._line(line - 1)[:1] in ("", "#"):
            line -= 1
        begin = self._line_starts[line - 1]
        self._edits.append(Edit(begin, begin, self._lines(code, self.margin(first))))

    def _lines(self, code: str, margin: str) -> str:
        # What a patch writes is indented by tabs, each of which stands for the file's own indentation.
        lines = code.replace("\t", self.indent).split("\n")
        return "".join(f"{margin}{line}\n" if line else "\n" for line in lines)

    def delete(self, statement: Node) -> None:
        """Take a statement away, with its lines; CannotPatch if it is alone in its block, or shares its line."""
        if len(self.block(statement)) < 2 or not self.begins_line(statement):
            raise CannotPatch(f"line {statement.lineno} is all that its block has")
        self.delete_lines(statement)

    def delete_lines(self, statement: Node) -> None:
        """Take the lines of a statement away, whatever is left."""
        begin = self._line_starts[statement.lineno - 1]
        end = min(self._line_starts[statement.end_lineno], len(self.text))
        self._edits.append(Edit(begin, end, ""))

    def move_before(self, statement: Node, other: Node) -> None:
        """Move a statement in front of another; CannotPatch where it cannot be taken away from its place."""
        self.insert_before(other, self.reindented(statement, ""))
        self.delete(statement)

    def indent_lines(self, statements: Node, under: str) -> None:
        """Put a statement, or a list of neighbouring ones, under a header such as ``if rank == 0:``; CannotPatch where
        a string goes over several of their lines."""
        group = statements if isinstance(statements, list) else [statements]
        self.insert_before(group[0], under)
        for statement in group:
            self._refuse_long_strings(statement)
            for line in range(self._first_line(statement), statement.end_lineno + 1):
                begin = self._line_starts[line - 1]
                if self._line(line):
                    self._edits.append(Edit(begin, begin, self.indent))

    def _refuse_long_strings(self, statement: Node) -> None:
        for string in self.all(ast.Constant, ast.JoinedStr, within=statement):
            code = self.text[slice(*self.span(string))] if string.lineno != string.end_lineno else ""
            if re.search(r'"""|\'\'\'|\\\n', code):
                raise CannotPatch(f"a string at line {string.lineno} goes over several lines")

    def reindented(self, statement: Node, margin: str) -> str:
        """The lines of a statement, as they would stand behind another margin; without the last line's end."""
        self._refuse_long_strings(statement)
        begin = self._line_starts[statement.lineno - 1]
        lines = self.text[begin : self._line_starts[statement.end_lineno] - 1].split("\n")
        indent = self.margin(statement)
        return "\n".join(margin + line.removeprefix(indent) if line.strip() else "" for line in lines)

    def add_argument(self, call: Node, argument: str) -> None:
        """One more argument at the end of a call."""
        given = self._arguments(call)
        if not given:
            at = self.span(call)[1] - 1
            self._edits.append(Edit(at, at, argument))
            return
        last = given[-1]
        at = self._span_of_argument(call, last)[1]
        lines = [it.lineno for it in given]
        # Each in a line of its own.
        alone = call.func.end_lineno not in (lines[0], lines[-1]) and lines.count(last.lineno) == 1
        between = f",\n{self.margin(last)}" if alone else ", "
        self._edits.append(Edit(at, at, between + argument))

    def _arguments(self, call: Node) -> list[Node]:
        return sorted((*call.args, *call.keywords), key=self.span)

    def _span_of_argument(self, call: Node, argument: Node) -> tuple[int, int]:
        """Where it begins and ends, with parentheses around it."""
        (begin, end), last = self.span(argument), self.span(call)[1] - 1
        while True:
            left, right = self.text[:begin].rstrip(), self.text[end:last].lstrip()
            if not (left.endswith("(") and right.startswith(")")):
                return begin, min(end, last)  # a generator has the parentheses of its call
            begin, end = len(left) - 1, last - len(right) + 1

    def remove_arguments(self, call: Node, values: Sequence[Node]) -> None:
        """Arguments less, with their commas; neighbours go together."""
        given = self._arguments(call)
        numbers = [n for n, arg in enumerate(given) if arg in values or getattr(arg, "value", arg) in values]
        while numbers:
            last = first = numbers.pop()
            while numbers and numbers[-1] == first - 1:
                first = numbers.pop()
            begin = self._span_of_argument(call, given[first])[0]
            end = self._span_of_argument(call, given[last])[1]
            if last + 1 < len(given):
                end = self._span_of_argument(call, given[last + 1])[0]
            elif first:
                begin = self._span_of_argument(call, given[first - 1])[1]
            self._edits.append(Edit(begin, end, ""))

    def replace_span(self, begin: int, end: int, text: str) -> None:
        """Replace what lies between two offsets."""
        self._edits.append(Edit(begin, end, text))

    # -- the result ---------------------------------------------------------------------------------------

    def take(self) -> list[Edit]:
        """The edits that were made, which are then forgotten."""
        edits, self._edits = self._edits, []
        return edits

    def after(self, edits: Iterable[Edit]) -> str:
        """The text after these edits, with line ends as ``\\n``; CannotPatch where they do not go together, or leave no
        Python."""
        text = apply_edits(self.text, edits)
        try:
            compile(text, str(self.path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            raise CannotPatch("the change would leave a syntax error") from None
        return text

    def encoded(self, text: str) -> bytes:
        """A text with the file's line ends and in its encoding; CannotPatch where that lacks a character."""
        try:
            return text.replace("\n", self.newline).encode(self.encoding)
        except UnicodeEncodeError:
            raise CannotPatch(f"{self.path.name} is encoded as {self.encoding}") from None
