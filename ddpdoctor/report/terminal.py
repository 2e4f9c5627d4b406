"""The report for a person: findings in full, then a line for each check, then the verdict."""

from __future__ import annotations

import io
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import TextIO

from ddpdoctor.model import CheckResult, Family, Level, Outcome, Report
from ddpdoctor.report.detail import finding_lines, fold_evidence, hang, informing_codes, verdict
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
_WORDS = {outcome: outcome.value for outcome in Outcome} | {Outcome.FAIL: "FAIL"}
_STYLES = (
    (r"^ {0,2}FAIL\b(\[DD\d+\])?", "bold red"),
    (r"^( {2}error {2}| {2}warn {3}|warn\[DD\d+\])", "yellow"),
    (r"^( {2}pass {3})", "green"),
    (r"^( {2}(skip|info) {3}|info\[DD\d+\]|note: .*)", "dim"),
    (r"^ {2}(-->|why:|sure:|fix:|more:) ", "bold cyan"),
    (r"^(ddpdoctor [\w.]+|next:|kept:|[a-z]+$|[a-z]+(?= +\d+ (passed|skipped)))", "bold"),
)


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


def paint(text: str, width: int) -> str:
    """The same text with colours; nothing is told by them alone."""
    from rich.console import Console
    from rich.text import Text

    painted = Text(text.removesuffix("\n"))
    for pattern, style in _STYLES:
        painted.highlight_regex(f"(?m){pattern}", style)
    written = io.StringIO()
    Console(file=written, force_terminal=True, width=width, legacy_windows=False).print(
        painted, soft_wrap=True
    )
    return written.getvalue()


def render(report: Report, width: int = DEFAULT_WIDTH, verbose: bool = False) -> str:
    """The report as plain text; information is told in full only where ``verbose``."""
    return "\n".join(_lines(report, width, verbose)) + "\n"


def _lines(report: Report, width: int, verbose: bool) -> Iterator[str]:
    yield _header(report, width)
    for finding in report.findings:
        if finding.level is not Level.INFO or verbose:
            yield ""
            yield from finding_lines(finding, width)
    yield ""
    folded = len(report.checks) > MOST_ROWS and not verbose
    yield from _folded_table(report, width) if folded else _table(report, width, verbose)
    yield from [""] if report.checks else []
    for note in report.notes:
        yield from hang("note:  ", note, width)
    yield from [""] if report.notes else []
    yield verdict(report)
    yield from _next_steps(report)


def _header(report: Report, width: int) -> str:
    run = report.run
    parts = [f"ddpdoctor {report.version}"]
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


def _table(report: Report, width: int, verbose: bool) -> Iterator[str]:
    order = list(Family)
    rows = sorted(report.checks, key=lambda check: (order.index(check.family), check.code))
    informing = informing_codes(report)
    for family, checks in groupby(rows, key=lambda check: check.family):
        yield family.value
        for check in checks:
            informs = check.outcome is Outcome.PASS and check.code in informing
            yield from _row(check, "info" if informs else _WORDS[check.outcome], width)
            if verbose:
                yield from _measured(check, width)


def _folded_table(report: Report, width: int) -> Iterator[str]:
    """A line for each family, and a row for each of its checks that has something to say."""
    informing = informing_codes(report)
    silent = {Outcome.PASS: "passed", Outcome.SKIP: "skipped"}
    for family in Family:
        checks = [check for check in report.checks if check.family is family]
        told = [one for one in checks if one.outcome not in silent or one.code in informing]
        counts = Counter(one.outcome for one in checks if one not in told)
        said = ", ".join(f"{counts[outcome]} {word}" for outcome, word in silent.items() if counts[outcome])
        if checks:
            yield f"{family.value:{_FAMILY}}{said}".rstrip()
        for check in sorted(told, key=lambda one: one.code):
            informs = check.outcome is Outcome.PASS
            yield from _row(check, "info" if informs else _WORDS[check.outcome], width)
    yield ""
    yield from _reasons(report, width)


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


def _row(check: CheckResult, word: str, width: int) -> Iterator[str]:
    label, text = f"  {word:5}  {check.code}  ", " ".join(check.text.split())
    time = f"{check.seconds:.1f} s"
    if time == "0.0 s":  # says nothing that is worth a column of them
        yield from hang(label, text, width)
        return
    first, *others = hang(label, text, width - _TIME)
    yield f"{first:{width - _TIME}}{time:>{_TIME}}"
    yield from others


def _measured(check: CheckResult, width: int) -> Iterator[str]:
    for entry in fold_evidence(check.evidence):
        ranks = f"{ranks_phrase(entry.ranks)}: " if entry.ranks else ""
        yield from hang(" " * 16, ranks + entry.text, width)


def _next_steps(report: Report) -> Iterator[str]:
    found = [finding for finding in report.findings if finding.level is not Level.INFO]
    if found:
        yield f"next:  {found[0].more}"
    if report.run.get("folder"):
        yield f"kept:  {report.run['folder']}"
