"""What was seen in the source, as checks report it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from ddpdoctor.check import Check
from ddpdoctor.model import Confidence, Evidence, Finding, Judgement, Kind, Passed, Where
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


def judge(
    check: Check, lines: UnreachedLines, sights: Iterable[Sight], headline: str, *, why: str = ""
) -> Judgement:
    """The findings of a check about lines that were not run, one for each line.

    Args:
        headline: with the words of a sight in braces.
        why: in place of the page's *Why it matters*.
    """
    found: dict[Where, Sight] = {}
    with suppress(RecursionError):  # what is too deep to read is no finding
        for sight in sights:
            found.setdefault(sight.at, sight)
    return [_finding(check, lines, it, headline, why) for it in found.values()] or Passed(
        "nothing in the source shows it"
    )


def _finding(check: Check, lines: UnreachedLines, sight: Sight, headline: str, why: str) -> Finding:
    report = check.warn if sight.certain else check.info
    details = {"why": why} if why else {}
    return report(
        headline.format_map(sight.words),
        where=sight.at,
        evidence=(Evidence(lines.not_run), *sight.evidence),
        confidence=Confidence.CERTAIN if sight.certain else Confidence.LIKELY,
        foreseen=True,
        about=Kind.LINE.of(f"{sight.at.file}:{sight.at.line}"),
        **details,
    )
