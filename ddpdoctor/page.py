"""The page of a check, taken apart: a summary, and sections of paragraphs and lines to copy."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from textwrap import indent

SECTIONS = ("What it finds", "Why it matters", "Example", "Fix")
"""The sections that every check's docstring has, in this order, each on a line of its own followed by ``:``."""
INDENT = "    "


@dataclass(frozen=True)
class Block:
    """A paragraph of a page, or lines to copy, which are never wrapped."""

    text: str
    is_code: bool = False


@dataclass(frozen=True)
class Page:
    """A check's docstring, taken apart."""

    summary: str
    sections: tuple[tuple[str, tuple[Block, ...]], ...]

    def section(self, name: str) -> str:
        """A section as a finding shows it: a line for each paragraph, and indented lines to copy; empty without one."""
        blocks = dict(self.sections).get(name, ())
        return "\n".join(indent(it.text, INDENT, bool) if it.is_code else it.text for it in blocks)


def read_page(docstring: str) -> Page:
    """The page that is a check's docstring, without its indentation."""
    summary: list[str] = []
    sections: list[tuple[str, list[str]]] = []
    for line in docstring.splitlines():
        if line.rstrip(":") in SECTIONS and line.endswith(":"):
            sections.append((line[:-1], []))
        else:
            (sections[-1][1] if sections else summary).append(line)
    return Page(
        " ".join(" ".join(summary).split()), tuple((name, tuple(_blocks(lines))) for name, lines in sections)
    )


def _blocks(lines: Sequence[str]) -> Iterator[Block]:
    """Paragraphs end at empty lines; to copy is what is indented further, and a section that is no sentence at all."""
    unindented = [line.removeprefix(INDENT) for line in lines]
    whole = "\n".join(unindented).strip("\n")
    if _is_python(whole) or ("\n " not in whole and not whole.endswith((".", ":"))):
        yield Block(whole, True)
        return
    for kind, group in groupby(unindented, key=lambda line: (not line.strip(), line.startswith(" "))):
        is_empty, is_code = kind
        if not is_empty:
            text = "\n".join(group)
            yield Block(_dedent(text), True) if is_code else Block(" ".join(text.split()))


def _is_python(text: str) -> bool:
    try:
        return bool(ast.parse(text).body)
    except SyntaxError:
        return False


def _dedent(text: str) -> str:
    lines = text.split("\n")
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[margin:] for line in lines)
