"""The lines that a finding is about, as compilers show them: numbered, marked, and with the ranks that are there."""

import textwrap
from collections.abc import Iterator
from dataclasses import replace

from ddpdoctor.model import Excerpt, Finding, Level, Mark, Where
from ddpdoctor.report.line import Line, Part, Style
from ddpdoctor.report.places import Places
from ddpdoctor.text import ranks_phrase

_MARK, _OTHER_MARK = "^", "-"
_COMMENT = "  #"
_CUT = " ..."


def excerpt_lines(finding: Finding, width: int, places: Places) -> Iterator[Line]:
    """The excerpts of a finding under the line that names its place."""
    digits = max(len(str(excerpt.first + len(excerpt.lines) - 1)) for excerpt in finding.excerpts)
    margin = " " * (digits + 2)
    file = finding.where.file if finding.where else ""
    several = sum(len(excerpt.marks) for excerpt in finding.excerpts) > 1
    for number, excerpt in enumerate(finding.excerpts):
        if excerpt.file != file:
            yield _file_line(excerpt, places)
        elif number:
            yield Line(f"{margin[:-2]}...")
        if excerpt.file != file or not number:
            yield _gutter(f"{margin} |", "")
        file = excerpt.file
        style = Style.FAIL if finding.level is Level.FAIL else Style.WARN
        yield from _numbered(excerpt, width, digits, style, labelled=several)


def _file_line(excerpt: Excerpt, places: Places) -> Line:
    shown = places.line(Where(excerpt.file, excerpt.marks[0].line))
    return Line(f"  ::: {shown}", (Part(2, 5, Style.LABEL),))


def _numbered(excerpt: Excerpt, width: int, digits: int, style: Style, *, labelled: bool) -> Iterator[Line]:
    room = width - len(f"  {'':{digits}} | ")
    if max(map(len, excerpt.lines)) > room:
        excerpt = dedented(excerpt)
    marks = {mark.line: mark for mark in excerpt.marks}
    for number, line in enumerate(excerpt.lines, excerpt.first):
        shown = line if len(line) <= room else line[: room - len(_CUT)] + _CUT
        yield _gutter(f"  {number:>{digits}} |", shown)
        if number in marks:
            part = _marked(marks[number], shown)
            yield _mark_line(marks[number], part, width, digits, style, labelled=labelled)


def dedented(excerpt: Excerpt) -> Excerpt:
    """The lines without the indentation that they share."""
    lines = textwrap.dedent("\n".join(excerpt.lines)).split("\n")
    left = len(excerpt.lines[0]) - len(lines[0])
    marks = (
        replace(mark, columns=(max(mark.columns[0] - left, 0), max(mark.columns[1] - left, 0)))
        if mark.columns
        else mark
        for mark in excerpt.marks
    )
    return replace(excerpt, lines=tuple(lines), marks=tuple(marks))


def _marked(mark: Mark, shown: str) -> tuple[int, int]:
    """The part of a line that is marked: an expression, or all code."""
    if mark.columns is not None and mark.columns[0] < len(shown):
        return mark.columns[0], min(mark.columns[1], len(shown))
    code = shown.partition(_COMMENT)[0].rstrip() or shown
    return len(code) - len(code.lstrip()), len(code)


def _mark_line(
    mark: Mark, part: tuple[int, int], width: int, digits: int, style: Style, *, labelled: bool
) -> Line:
    """The line under a marked one: what is marked of it, and the ranks that are there."""
    gutter = f"  {'':{digits}} |"
    first, end = part
    label = f" {ranks_phrase(mark.ranks)}" if labelled and mark.ranks else ""
    length = max(min(end - first, width - len(gutter) - 1 - first - len(label)), 1)
    sign = _MARK if mark.main else _OTHER_MARK
    line = _gutter(gutter, " " * first + sign * length + label)
    start = len(gutter) + 1 + first
    marked = Part(start, len(line.text), style if mark.main else Style.LABEL)
    return Line(line.text, (*line.parts, marked))


def _gutter(gutter: str, text: str) -> Line:
    return Line(f"{gutter} {text}".rstrip(), (Part(0, len(gutter), Style.LABEL),))
