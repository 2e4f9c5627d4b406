"""Findings that a project knows of: silenced by a comment on their line, or by a pattern of their file's name."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.model import Finding
from ddpdoctor.text import plural

_COMMENT = re.compile(r"#\s*ddpdoctor:\s*ignore\b(?:\s*\[(?P<selectors>[^\]]*)\])?", re.IGNORECASE)


@dataclass(frozen=True)
class Silencer:
    """What is to be left out of a report."""

    working: Path = field(default_factory=Path.cwd)
    """The folder to which the files of findings are relative."""
    base: Path = field(default_factory=Path.cwd)
    """The folder to which the patterns are relative."""
    per_file: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Selectors of checks, by pattern of the file that a finding names."""

    def hides(self, finding: Finding) -> bool:
        """Whether a comment on the finding's line, or a pattern of its file's name, silences it."""
        if finding.where is None:
            return False
        file = self.working / finding.where.file
        return self._by_pattern(finding.code, file) or self._by_comment(finding, file)

    def _by_pattern(self, code: str, file: Path) -> bool:
        name = str(file.relative_to(self.base)) if file.is_relative_to(self.base) else str(file)
        return any(
            (fnmatch(name, pattern) or fnmatch(file.name, pattern)) and _means(code, selectors)
            for pattern, selectors in self.per_file.items()
        )

    def _by_comment(self, finding: Finding, file: Path) -> bool:
        comment = _COMMENT.search(_line(file, finding.where.line if finding.where else None))
        if comment is None:
            return False
        selectors = comment["selectors"]
        return selectors is None or _means(finding.code, [name.strip() for name in selectors.split(",")])


def _means(code: str, selectors: Iterable[str]) -> bool:
    check = registry.by_code(code)
    return any(
        code.lower().startswith(selector.lower()) or (check is not None and selector.lower() == check.name)
        for selector in selectors
        if selector
    )


def _line(file: Path, number: int | None) -> str:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if number else []
    except OSError:  # a frame of code that is in no file
        return ""
    return lines[number - 1] if number and number <= len(lines) else ""


def note_of(silenced: Sequence[Finding]) -> str | None:
    """The sentence of the report that counts them; None where there are none."""
    if not silenced:
        return None
    places = (f"{it.code} at {it.where}" for it in silenced if it.where)
    return f"{plural(len(silenced), 'finding')} silenced by comments or per-file-ignores: {', '.join(places)}"
