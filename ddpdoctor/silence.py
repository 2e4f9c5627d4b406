"""Findings that a project knows of: silenced by a comment on their line, or by a pattern of their file's name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path

from ddpdoctor import registry
from ddpdoctor.model import CheckResult, Finding, Level, Outcome
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

    def split(self, findings: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
        """The findings that stay, and those that are silenced."""
        kept: list[Finding] = []
        silenced: list[Finding] = []
        for finding in findings:
            (silenced if self._is_silenced(finding) else kept).append(finding)
        return kept, silenced

    def _is_silenced(self, finding: Finding) -> bool:
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
        found = _COMMENT.search(_line(file, finding.where.line if finding.where else None))
        if found is None:
            return False
        selectors = found["selectors"]
        return selectors is None or _means(finding.code, [one.strip() for one in selectors.split(",")])


def _means(code: str, selectors: Iterable[str]) -> bool:
    check = registry.by_code(code)
    return any(
        code.lower().startswith(one.lower()) or (check is not None and one.lower() == check.name)
        for one in selectors
        if one
    )


def _line(file: Path, number: int | None) -> str:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines() if number else []
    except OSError:  # a frame of code that is in no file
        return ""
    return lines[number - 1] if number and number <= len(lines) else ""


def without_silenced(
    results: Iterable[CheckResult], kept: Iterable[Finding], silenced: Iterable[Finding]
) -> tuple[CheckResult, ...]:
    """The checks' lines where some of their findings are left out."""
    gone = Counter(finding.code for finding in silenced)
    left = {finding.code: finding for finding in reversed(list(kept))}
    return tuple(_line_of(one, gone[one.code], left.get(one.code)) for one in results)


def _line_of(line: CheckResult, gone: int, left: Finding | None) -> CheckResult:
    if not gone or line.outcome is Outcome.ERROR:
        return line
    if left is not None:
        outcome = Outcome.PASS if left.level is Level.INFO else Outcome(left.level.value)
        return replace(line, outcome=outcome, text=left.headline)
    reason = f"{plural(gone, 'finding')} silenced"
    return replace(line, outcome=Outcome.SKIP, text=reason, reason=reason)


def note_of(silenced: Sequence[Finding]) -> str | None:
    """The sentence of the report that counts them; None where there are none."""
    if not silenced:
        return None
    places = (f"{one.code} at {one.where.file}:{one.where.line}" for one in silenced if one.where)
    return f"{plural(len(silenced), 'finding')} silenced by comments or per-file-ignores: {', '.join(places)}"
