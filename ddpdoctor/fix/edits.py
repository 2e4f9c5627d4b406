"""Changes of a text: spans that are replaced, merged, applied, and shown as a unified diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddpdoctor.fix import CannotPatch

_ALIKE = 0.5
"""From which a line that was changed is taken for the same one."""


@dataclass(frozen=True, order=True)
class Edit:
    """A span of a text and what stands there afterwards; offsets are of the text before any edit."""

    begin: int
    end: int
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """The text after all edits. Equal edits count once; insertions at one place stand in the order given.

    Raises:
        CannotPatch: two edits change the same span.
    """
    parts, position = [], 0
    for edit in sorted(dict.fromkeys(edits), key=lambda edit: (edit.begin, edit.end)):
        if edit.begin < position:
            raise CannotPatch("two changes of the same line do not go together")
        parts += [text[position : edit.begin], edit.text]
        position = edit.end
    return "".join([*parts, text[position:]])


def unified_diff(name: str, before: str, after: str) -> str:
    """The difference as ``git apply`` and ``patch -p1`` read it.

    Args:
        name: the file, relative to the folder in which the diff is applied.
    """
    lines = difflib.unified_diff(_lines(before), _lines(after), f"a/{name}", f"b/{name}", n=3)
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def moved_lines(before: str, after: str) -> dict[int, int]:
    """The number that each line has afterwards, by the one that it had before; without the lines that are gone."""
    first, second = _lines(before), _lines(after)
    moved: dict[int, int] = {}
    for kind, begin, end, begin_after, end_after in _opcodes(first, second):
        for number in range(begin, end):
            if kind == "equal":
                moved[number + 1] = number - begin + begin_after + 1
            elif kind == "replace":
                likeness = {
                    other: difflib.SequenceMatcher(None, first[number], second[other]).ratio()
                    for other in range(begin_after, end_after)
                }
                likest = max(likeness, key=lambda other: likeness[other])
                if likeness[likest] > _ALIKE:
                    moved[number + 1] = likest + 1
    return moved


def changed_lines(before: str, after: str) -> list[tuple[int, int, str]]:
    """What lines are replaced: the first, from 1, how many go, and what stands there afterwards."""
    first, second = _lines(before), _lines(after)
    return [
        (begin + 1, end - begin, "".join(second[begin_after:end_after]))
        for kind, begin, end, begin_after, end_after in _opcodes(first, second)
        if kind != "equal"
    ]


def _opcodes(first: list[str], second: list[str]) -> Sequence[tuple[str, int, int, int, int]]:
    return difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes()


def _lines(text: str) -> list[str]:
    """The lines as editors count them: ``splitlines`` also parts at form feeds."""
    *lines, rest = text.split("\n")
    return [f"{line}\n" for line in lines] + ([rest] if rest else [])
