"""What was seen in the source, as checks report it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ddpdoctor.check import Check, Confidence, Evidence, Finding, Judgement, Kind, Passed, Where

if TYPE_CHECKING:
    from ddpdoctor.unreached.lines import UnreachedLines


@dataclass(frozen=True)
class Sight:
    """One instance of a problem."""

    at: Where
    words: Mapping[str, str] = field(default_factory=dict)
    """What the headline is filled with."""
    evidence: tuple[Evidence, ...] = ()
    """The path of the value, line by line, and the conditions in front."""
    certain: bool = True
    """Whether it follows from facts; information otherwise."""


def findings(check: Check, lines: UnreachedLines) -> Judgement:
    """What a check finds by its row of :attr:`~ddpdoctor.check.Check.unreached`, once for each line."""
    assert check.unreached is not None
    look, headline = check.unreached
    found: dict[Where, Sight] = {}
    with suppress(RecursionError):  # what is too deep to read is no finding
        for sight in look(lines):
            found.setdefault(sight.at, sight)
    return [_finding(check, lines, it, headline) for it in found.values()] or Passed(
        "nothing in the source shows it"
    )


def _finding(check: Check, lines: UnreachedLines, sight: Sight, headline: str) -> Finding:
    report = check.warn if sight.certain else check.info
    return report(
        headline.format_map(sight.words),
        where=sight.at,
        evidence=(Evidence(lines.not_run), *sight.evidence),
        confidence=Confidence.CERTAIN if sight.certain else Confidence.LIKELY,
        foreseen=True,
        about=Kind.LINE.of(f"{sight.at.file}:{sight.at.line}"),
    )
