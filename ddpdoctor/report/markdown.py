"""The report as Markdown, for the summary of a CI job or a comment on a merge request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpdoctor.model import Finding, Outcome, Report
from ddpdoctor.report.detail import LEVELS, by_check, full_text, verdict
from ddpdoctor.report.places import Places

_WIDTH = 100
_SIGNS = re.compile(r"([\\`*_{}\[\]()#+.!|~$@:-])")
_RUN_OF_TICKS = re.compile(r"`+")


def render(report: Report) -> str:
    """A heading with the verdict, a table of the findings, then each in full, folded."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    places = Places.of(report)
    yield f"### ddpdoctor: {verdict(report)}"
    script = report.run.get("script")
    if script:
        yield f"\n{_text(str(script))}"
    blocks = by_check(report.findings)
    if blocks:
        yield "\n| | check | where | finding |\n|---|---|---|---|"
        yield from (_row(findings, places) for findings in blocks)
    for finding in report.findings:
        yield from _full(finding, places)
    broken = [check for check in report.checks if check.outcome is Outcome.ERROR]
    remarks = [*(f"{check.code}: {check.text}" for check in broken), *report.notes]
    yield from [""] if remarks else []
    yield from (f"- {_text(remark)}" for remark in remarks)


def _row(findings: list[Finding], places: Places) -> str:
    first, *others = findings
    where = _text(places.line(first.where)) if first.where else ""
    more = f" (and {len(others)} more)" if others else ""
    return f"| {LEVELS[first.level][0]} | {first.code} | {where} | {_text(first.headline)}{more} |"


def _full(finding: Finding, places: Places) -> Iterator[str]:
    text = full_text(finding, _WIDTH, places)
    fence = "`" * max(3, 1 + max((len(run) for run in _RUN_OF_TICKS.findall(text)), default=0))
    yield f"\n<details><summary>{finding.code}: {_text(finding.headline)}</summary>\n"
    yield f"{fence}text\n{text}\n{fence}\n\n</details>"


def _text(text: str) -> str:
    """Foreign text in one line, in which no character is a sign of Markdown or HTML."""
    shown = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SIGNS.sub(r"\\\1", shown)
