"""The report for a person: findings in full, then a line for each check, then the verdict."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import TextIO

from ddpdoctor.model import CheckResult, Family, Level, Outcome, Report
from ddpdoctor.report.detail import (
    block_lines,
    by_check,
    fold_evidence,
    hang,
    informing_codes,
    verdict,
)
from ddpdoctor.report.line import Line, Style, plain, styled
from ddpdoctor.text import plural, ranks_phrase, shorten

DEFAULT_WIDTH = 80
WIDEST = 110
"""Times stand at the right edge; further away than this the eye loses their line."""
NARROWEST = 50
"""Narrower than this a row has no room for words, and the terminal may wrap it."""
_TIME = 9
"""The width of the column of times."""
MOST_ROWS = 20
"""Checks that are all listed; of more, those that merely passed or were skipped are counted, to keep one screen."""
_MOST_REASONS = 4
_SHORTEST_SCRIPT = 20
_FAMILY = max(len(family.value) for family in Family) + 2
_WORDS = {
    Outcome.FAIL: ("FAIL", Style.FAIL),
    Outcome.ERROR: ("error", Style.WARN),
    Outcome.WARN: ("warn", Style.WARN),
    Outcome.PASS: ("pass", Style.PASS),
    Outcome.SKIP: ("skip", Style.FAINT),
}
_INFO = ("info", Style.FAINT)


def width_of_stdout() -> int:
    """The columns to write for: the terminal's, or 80 where there is none."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns))


def wants_colour(stream: TextIO) -> bool:
    """Whether colours are welcome: a terminal that can, and no ``NO_COLOR``."""
    return (
        stream.isatty()
        and not os.environ.get("NO_COLOR")
        and os.environ.get("TERM") not in ("dumb", "unknown")
    )


def render(report: Report, width: int = DEFAULT_WIDTH, verbose: bool = False, *, colour: bool = False) -> str:
    """The report as text; information is told in full only where ``verbose``."""
    lines = _lines(report, width, verbose)
    return "".join(f"{line.painted if colour else line.text}\n" for line in lines)


def _lines(report: Report, width: int, verbose: bool) -> Iterator[Line]:
    yield Line(_header(report, width), Style.HEADING, len(_version(report)))
    shown = [finding for finding in report.findings if finding.level is not Level.INFO or verbose]
    for findings in [[finding] for finding in shown] if verbose else by_check(shown):
        yield Line("")
        yield from block_lines(findings, width)
    yield Line("")
    folded = len(report.checks) > MOST_ROWS and not verbose
    yield from _folded_table(report, width) if folded else _table(report, width, verbose)
    yield from [Line("")] if report.checks else []
    for note in report.notes:
        lines = hang("note:  ", note, width)
        yield from styled(lines, Style.FAINT, len(lines[0]))
    yield from [Line("")] if report.notes else []
    yield Line(verdict(report))
    yield from _next_steps(report)


def _version(report: Report) -> str:
    return f"ddpdoctor {report.version}"


def _header(report: Report, width: int) -> str:
    run = report.run
    parts = [_version(report)]
    if run.get("torch"):
        parts.append(f"torch {'.'.join(str(run['torch']).split('.')[:2])}")
    if run.get("nproc"):
        hosts = run.get("nnodes", 1)
        parts.append(f"{plural(run['nproc'] * hosts, 'rank')} on {plural(hosts, 'host')}")
    if run.get("backend"):
        parts.append(run["backend"])
    left = ", ".join(parts)
    right = shorten(str(run.get("script") or ""), max(width - len(left) - 2, _SHORTEST_SCRIPT))
    return f"{left}{right:>{max(width - len(left), len(right) + 2)}}" if right else left


def _table(report: Report, width: int, verbose: bool) -> Iterator[Line]:
    order = list(Family)
    rows = sorted(report.checks, key=lambda check: (order.index(check.family), check.code))
    informing = informing_codes(report)
    for family, checks in groupby(rows, key=lambda check: check.family):
        yield _heading(family)
        for check in checks:
            yield from _row(check, check.code in informing, width)
            if verbose:
                yield from plain(_measured(check, width))


def _folded_table(report: Report, width: int) -> Iterator[Line]:
    """A line for each family, and a row for each of its checks that has something to say."""
    informing = informing_codes(report)
    silent = {Outcome.PASS: "passed", Outcome.SKIP: "skipped"}
    for family in Family:
        checks = [check for check in report.checks if check.family is family]
        shown = [check for check in checks if check.outcome not in silent or check.code in informing]
        counts = Counter(check.outcome for check in checks if check not in shown)
        summary = ", ".join(
            f"{counts[outcome]} {word}" for outcome, word in silent.items() if counts[outcome]
        )
        if checks:
            yield _heading(family, summary)
        for check in sorted(shown, key=lambda check: check.code):
            yield from _row(check, check.code in informing, width)
    yield Line("")
    yield from plain(_reasons(report, width))


def _heading(family: Family, summary: str = "") -> Line:
    return Line(f"{family.value:{_FAMILY}}{summary}".rstrip(), Style.HEADING, len(family.value))


def _reasons(report: Report, width: int) -> Iterator[str]:
    """Why checks were skipped, the most frequent reasons first."""
    counts = Counter(
        check.reason for check in report.checks if check.outcome is Outcome.SKIP and check.reason
    )
    frequent = [(reason, count) for reason, count in counts.most_common(_MOST_REASONS) if count > 1]
    for reason, count in frequent:
        yield from hang(f"skipped {count:>3}  ", reason, width)
    left = counts.total() - sum(count for _, count in frequent)
    if left:
        yield f"skipped {left:>3}  for other reasons, which --verbose lists"


def _row(check: CheckResult, informs: bool, width: int) -> Iterator[Line]:
    word, style = _INFO if informs and check.outcome is Outcome.PASS else _WORDS[check.outcome]
    label, text = f"  {word:5}  {check.code}  ", " ".join(check.text.split())
    time = f"{check.seconds:.1f} s"
    if time == "0.0 s":  # says nothing that is worth a column of them
        lines = hang(label, text, width)
    else:
        first, *others = hang(label, text, width - _TIME)
        lines = [f"{first:{width - _TIME}}{time:>{_TIME}}", *others]
    yield from styled(lines, style, 2 + len(word))


def _measured(check: CheckResult, width: int) -> Iterator[str]:
    for entry in fold_evidence(check.evidence):
        ranks = f"{ranks_phrase(entry.ranks)}: " if entry.ranks else ""
        yield from hang(" " * 16, ranks + entry.text, width)


def _next_steps(report: Report) -> Iterator[Line]:
    findings = [finding for finding in report.findings if finding.level is not Level.INFO]
    if findings:
        yield Line(f"next:  {findings[0].more}", Style.HEADING, len("next:"))
    if report.run.get("folder"):
        yield Line(f"kept:  {report.run['folder']}", Style.HEADING, len("kept:"))
