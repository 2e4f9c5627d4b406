"""Reads the lines that findings are about from the files of the user, for a person to look at."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from ddpdoctor.model import Excerpt, Finding, Mark, Report, Where
from ddpdoctor.secret import mask_source

Columns = tuple[int, int]

_AROUND = 2
"""Lines above and below a line, where a finding is about no other."""
_BESIDE_OTHERS = 1
"""The same where it is about several."""
_NEAR = 4
"""Lines from one place to the next that is shown with all lines between them."""
_MOST_PLACES = 3
_LARGEST = 4 << 20
"""Bytes; a larger file is no script that somebody wrote."""


def with_excerpts(report: Report, folder: Path) -> Report:
    """The report with the lines that its findings are about, from files below this folder that are still what ran."""
    since = report.since
    findings = (replace(it, excerpts=tuple(_excerpts(it, folder, since))) for it in report.findings)
    return replace(report, findings=tuple(findings))


def _excerpts(finding: Finding, folder: Path, since: float) -> Iterator[Excerpt]:
    by_file: dict[str, list[Mark]] = {}
    for file, mark in _marks(finding):
        by_file.setdefault(file, []).append(mark)
    only = sum(map(len, by_file.values())) == 1
    for file, marks in by_file.items():
        lines = _lines(folder / file, since)
        for near in _near(sorted(marks, key=lambda mark: mark.line)):
            if near[-1].line <= len(lines):
                around = _AROUND if only else _BESIDE_OTHERS * any(mark.main for mark in near)
                yield _excerpt(file, lines, near, around)


def _marks(finding: Finding) -> list[tuple[str, Mark]]:
    """Each place that the finding is about, with the ranks that are there; its own first."""
    ranks: dict[tuple[str, int], set[int]] = {}
    columns: dict[tuple[str, int], Columns | None] = {}
    for where in (finding.where, *(entry.where for entry in finding.evidence)):
        for place in _numbered([where]):
            ranks[place] = set()
            columns.setdefault(place, where.columns if where else None)
    for entry in finding.evidence:
        for place in _numbered([entry.where]):
            ranks[place].update(entry.ranks)
    headline_place = next(_numbered([finding.where]), None)
    return [
        (place[0], Mark(place[1], tuple(sorted(ranks[place])), place == headline_place, columns[place]))
        for place in list(ranks)[:_MOST_PLACES]
    ]


def _numbered(places: Iterable[Where | None]) -> Iterator[tuple[str, int]]:
    return ((where.file, where.line) for where in places if where and where.line)


def _near(marks: list[Mark]) -> Iterator[list[Mark]]:
    """Marks whose lines are shown together, since few lines lie between them."""
    group = marks[:1]
    for mark in marks[1:]:
        if mark.line - group[-1].line > _NEAR:
            yield group
            group = []
        group.append(mark)
    yield group


def _excerpt(file: str, lines: list[str], marks: list[Mark], around: int) -> Excerpt:
    first = max(marks[0].line - around, 1)
    last = min(marks[-1].line + around, len(lines))
    while not lines[first - 1].strip() and first < marks[0].line:
        first += 1
    while not lines[last - 1].strip() and last > marks[-1].line:
        last -= 1
    shown = (mask_source(_expanded(line).rstrip()) for line in lines[first - 1 : last])
    marks = [replace(mark, columns=_in_characters(lines[mark.line - 1], mark.columns)) for mark in marks]
    return Excerpt(file, first, tuple(shown), tuple(marks))


def _expanded(text: str) -> str:
    return text.expandtabs(4)


def _in_characters(line: str, columns: Columns | None) -> Columns | None:
    """Where the bytes of an expression are in its line as it is shown; None where that is not what is in the file."""
    if columns is None:
        return None
    source = line.encode()
    first, end = (len(_expanded(source[:column].decode(errors="replace"))) for column in columns)
    shown = _expanded(line)
    return (first, end) if shown[first:end].strip() and mask_source(shown) == shown else None


def _lines(file: Path, since: float) -> list[str]:
    """The lines of a file as it was when it ran; none where it changed since, or cannot be read."""
    try:
        status = file.stat()
        if status.st_mtime > since or status.st_size > _LARGEST or not file.is_file():
            return []
        return file.read_text(encoding="utf-8", errors="replace").split("\n")
    except (OSError, ValueError):  # a name that no file can have
        return []
