"""Findings on a page: the cause first, the others of a check with it, information folded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from ddpdoctor.model import Confidence, Evidence, Excerpt, Finding, Level, Mark, Report
from ddpdoctor.report.detail import COMMENT, by_check, fold_evidence
from ddpdoctor.report.excerpt import dedented
from ddpdoctor.report.html.markup import Markup, fitting, tag, together
from ddpdoctor.report.places import Places
from ddpdoctor.text import fold_ranks, ranks_phrase, shorten

_CODE = re.compile(
    r"""(with|if|for|while|def|class|try|else)\b.*:$  # above indented lines
    | [\w.]+\(.*\)$  # a call
    | [\w.\[\]"']+(,\ [\w.]+)*\ [-+*/]?=\ \S.*$  # an assignment
    | (import|from\ \S+\ import)\ [\w.*]+(,\ \w+)*$
    | (ddpdoctor|torchrun|export|pip|ulimit|git)\ .*$""",
    re.VERBOSE,
)
"""A line of Python, or a command."""
ROOM = 600_000
"""Characters of all findings: a page stays small whatever a run did."""
MOST_ALSO, MOST_EVIDENCE, LONGEST_EVIDENCE, LONGEST_TEXT = 20, 32, 4000, 2000
"""Of a block: findings told in short, entries of evidence, characters of each, and of any other text."""
LONGEST_SUMMARY, SHORT = 200, 12
"""Characters of the line that stands for several; lines that need not be folded."""


def findings_part(report: Report) -> Markup | None:
    """All findings of a report."""
    loud = by_check(finding for finding in report.findings if finding.level is not Level.INFO)
    quiet = by_check(finding for finding in report.findings if finding.level is Level.INFO)
    block = partial(_block, places=Places.of(report))
    parts = fitting(loud, block, ROOM, "more checks found problems; their lines are below.")
    if quiet:
        folded = fitting(quiet, block, ROOM // 4, "more")
        parts.append(tag("details", tag("summary", f"{len(quiet)} for information"), folded))
    if not parts:
        return None
    return tag("section", tag("h2", "Findings", id="findings"), parts, aria_labelledby="findings")


def _block(findings: Sequence[Finding], places: Places) -> Markup:
    """Findings of one check: the first in full, of the others where and what."""
    first, *others = findings
    return tag(
        "article",
        tag("h3", _label(first), shorten(first.headline, LONGEST_TEXT)),
        tag("div", tag("code", places.place(first.where)), class_="where") if first.where else None,
        [_source(excerpt, first, places) for excerpt in first.excerpts],
        _evidence(first.evidence),
        _advice(first),
        _also(others, places) if others else None,
        class_=f"finding {first.level.value}",
    )


def _label(finding: Finding) -> Markup:
    return tag("span", f"{finding.level.value} {finding.code}", class_="level")


def _source(excerpt: Excerpt, finding: Finding, places: Places) -> Markup:
    """Lines of a file with their numbers; those that the finding is about marked, with the ranks that are there."""
    excerpt = dedented(excerpt)
    marks = {mark.line: mark for mark in excerpt.marks}
    several = sum(len(each.marks) for each in finding.excerpts) > 1
    rows: list[Markup] = []
    for number, line in enumerate(excerpt.lines, excerpt.first):
        mark = marks.get(number)
        here = f" {'main' if mark.main else 'here'}" if mark else ""
        ranks = (
            tag("span", ranks_phrase(mark.ranks), class_="who") if mark and mark.ranks and several else None
        )
        rows.append(tag("span", f"{number}", class_=f"number{here}"))
        rows.append(
            tag(
                "span",
                _code(line, mark) if mark else line or " ",
                " " if ranks else None,
                ranks,
                class_=f"code{here}",
            )
        )
    other = finding.where is None or excerpt.file != finding.where.file
    name = tag("div", tag("code", places.file(excerpt.file)), class_="where") if other else None
    lines = tag("pre", rows)
    label = f"lines of {places.file(excerpt.file)} from {excerpt.first}"
    return together(name, tag("div", lines, class_="source", tabindex=0, role="region", aria_label=label))


def _code(line: str, mark: Mark) -> Markup | str:
    """A marked line, with the expression that is meant where that is known."""
    if mark.columns is None:
        return line or " "
    first, end = mark.columns
    return together(line[:first], tag("span", line[first:end], class_="expression"), line[end:])


def _evidence(evidence: Sequence[Evidence]) -> Markup | None:
    """What was seen, by rank where it is so."""
    entries = fold_evidence(evidence)
    if not entries:
        return None
    ranks = any(entry.ranks for entry in entries)
    rows = [
        tag(
            "tr",
            tag("td", fold_ranks(entry.ranks) if entry.ranks else "", class_="wrap") if ranks else None,
            tag("td", _seen(entry.text), class_="wrap"),
        )
        for entry in entries[:MOST_EVIDENCE]
    ]
    head = tag("thead", tag("tr", tag("th", "Ranks", scope="col"), tag("th", "Seen", scope="col")))
    left = len(entries) - MOST_EVIDENCE
    more = tag("p", f"and {left} more", class_="note") if left > 0 else None
    return tag("div", tag("table", head if ranks else None, tag("tbody", rows)), more)


def _seen(text: str) -> Markup | str:
    """One line as it is; several, as a stack or output has them, folded under the first."""
    text = text if len(text) <= LONGEST_EVIDENCE else f"{text[:LONGEST_EVIDENCE]} ..."
    first, _, rest = text.partition("\n")
    if not rest:
        return text
    last = rest.rpartition("\n")[2]
    raised = first.startswith("Traceback") and len(last) <= LONGEST_SUMMARY
    summary = tag("summary", f"{first} ... {last}" if raised else first)
    return tag("details", summary, tag("pre", rest), open=raised and rest.count("\n") < SHORT)


def _advice(finding: Finding) -> Markup:
    sure = finding.confidence is Confidence.LIKELY
    pairs = [
        ("Why", finding.why),
        *([("Sure", "likely, not certain")] if sure else []),
        ("Fix", finding.fix),
        ("More", f"    {finding.more}"),
    ]
    return tag("dl", [_pair(name, text) for name, text in pairs], class_="labelled")


def _pair(name: str, text: str) -> Markup:
    return together(tag("dt", name), tag("dd", list(_prose(text))))


def _is_code(line: str) -> bool:
    return line.startswith(" ") or COMMENT in line or _CODE.match(line) is not None


def _prose(text: str) -> Iterator[Markup]:
    """Sentences as paragraphs, and indented lines as something to copy."""
    for copied, lines in groupby(text[:LONGEST_TEXT].split("\n"), key=_is_code):
        block = list(lines)
        if copied:
            margin = min(len(line) - len(line.lstrip()) for line in block)
            yield tag("pre", "\n".join(line[margin:] for line in block))
        else:
            yield from (tag("div", line) for line in block if line)


def _also(findings: Sequence[Finding], places: Places) -> Markup:
    items = [
        tag("li", _label(finding), _in_short(finding, places), class_=finding.level.value)
        for finding in findings[:MOST_ALSO]
    ]
    left = len(findings) - MOST_ALSO
    items += [tag("li", f"and {left} more")] if left > 0 else []
    summary = tag("summary", f"{len(findings)} more of {findings[0].code}")
    return tag("details", summary, tag("ul", items, class_="also"), open=len(findings) <= 3)


def _in_short(finding: Finding, places: Places) -> str:
    at = [places.place(finding.where)] if finding.where else []
    at += [ranks_phrase(finding.ranks)] if finding.ranks else []
    return ": ".join(filter(None, [", ".join(at), shorten(finding.headline)]))
