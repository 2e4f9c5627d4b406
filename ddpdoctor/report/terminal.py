"""The report for a person: what passed in short, then findings in full, then the verdict above the prompt."""

import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TextIO

from ddpdoctor.model import CheckResult, Finding, Level, Outcome, Report
from ddpdoctor.report.detail import (
    block_lines,
    by_check,
    counts,
    fold_evidence,
    hang,
    in_order,
    informing_codes,
    ranks_of_run,
    summary_lines,
    verdict,
)
from ddpdoctor.report.line import Line, Style, beginning, plain, styled
from ddpdoctor.report.places import Places
from ddpdoctor.text import quote_command, ranks_phrase, size

DEFAULT_WIDTH = 80
WIDEST = 110
"""Times stand at the right edge; further away than this the eye loses their line."""
NARROWEST = 50
"""Narrower than this a row has no room for words, and the terminal may wrap it."""
_TIME = 9
"""The width of the column of times."""
MOST_ROWS = 8
"""Checks that are all listed; of more, those that merely passed or were skipped are counted, to keep one screen."""
_FIXING = ("--fix", "--apply", "--force")
_LONGEST_COMMAND = 2000
"""To be copied, so not cut."""
_SILENT = (Outcome.PASS, Outcome.SKIP)
"""What says nothing above info."""
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
    can = stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return can and not os.environ.get("NO_COLOR")


def render(report: Report, width: int = DEFAULT_WIDTH, verbose: bool = False, *, colour: bool = False) -> str:
    """The report as text; every check, and information in full, only where ``verbose``."""
    lines = _lines(report, width, verbose)
    return "".join(f"{line.painted() if colour else line.text}\n" for line in lines)


def _lines(report: Report, width: int, verbose: bool) -> Iterator[Line]:
    sections = [list(section) for section in _sections(report, width, verbose)]
    for number, section in enumerate(section for section in sections if section):
        yield from [Line("")] if number else []
        yield from section


def _sections(report: Report, width: int, verbose: bool) -> Iterator[Iterator[Line]]:
    """What has a blank line between it and the next."""
    places = Places.of(report)
    yield _header(report, width, places)
    yield _table(report, width) if verbose else _overview(report, width)
    yield _notes(report, width)
    if verbose:
        yield _not_reached(report, width)
    shown = [it for it in report.findings if it.level is not Level.INFO or verbose or it.patch]
    blocks = by_check(shown)
    for findings in [[finding] for finding in shown] if verbose else blocks:
        yield block_lines(findings, width, places)
    yield _end(report, width, summary_lines(blocks, width, places) if len(blocks) > 1 else iter(()), verbose)


def _notes(report: Report, width: int) -> Iterator[Line]:
    for note in report.notes:
        lines = hang("note:  ", note, width)
        yield from styled(lines, Style.FAINT, len(lines[0]))


def _not_reached(report: Report, width: int) -> Iterator[Line]:
    """The lines of the script to which no rank came, each with the condition in front of it."""
    for number, line in enumerate(report.run.get("not_reached") or ()):
        condition = f", which needs {line['condition']}" if line["condition"] else ""
        label = "not reached:  " if not number else " " * len("not reached:  ")
        text = f"{line['file']}:{line['line']}  {line['what']} ({line['kind']}){condition}"
        yield from plain(hang(label, text, width))


def _end(report: Report, width: int, summary: Iterator[Line], verbose: bool) -> Iterator[Line]:
    """What stands above the prompt."""
    yield from summary
    if verbose:
        yield Line(counts(report))
    yield from plain(hang("", verdict(report), width))
    findings = [finding for finding in report.findings if finding.level is not Level.INFO]
    if findings:
        yield beginning(f"next:  {_next(report, findings)}", Style.HEADING, len("next:"))
    if report.run.get("folder"):
        bytes = report.run.get("folder_bytes")
        about = f" ({size(bytes)})" if bytes else ""
        yield beginning(f"kept:  {report.run['folder']}{about}", Style.HEADING, len("kept:"))


def _next(report: Report, findings: Sequence[Finding]) -> str:
    """The command that helps most now."""
    words, folder = list(report.command), report.run.get("folder")
    if any(finding.patch and finding.patch.verified for finding in findings):
        if "--apply" in words:
            return quote_command(("ddpdoctor", *(it for it in words if it not in _FIXING)), _LONGEST_COMMAND)
        if "--diff" in words[:-1]:
            return f"git apply {quote_command(words[words.index('--diff') + 1 :][:1], _LONGEST_COMMAND)}"
        if words[:1] == ["fix"]:
            return quote_command(("ddpdoctor", "fix", "--apply", *words[1:]), _LONGEST_COMMAND)
        if folder:
            return f"ddpdoctor fix --apply {folder}"
    elif folder and any(finding.mechanical for finding in findings):
        return f"ddpdoctor fix {folder}"
    return findings[0].more


def _version(report: Report) -> str:
    return f"ddpdoctor {report.version}"


def _header(report: Report, width: int, places: Places) -> Iterator[Line]:
    """What was examined, with what; the script at the right edge, or in lines of its own."""
    run = report.run
    parts = [_version(report)]
    if run.get("torch"):
        parts.append(f"torch {'.'.join(str(run['torch']).split('.')[:2])}")
    if ranks := ranks_of_run(report):
        parts.append(ranks)
    if run.get("backend"):
        parts.append(run["backend"])
    left, script = ", ".join(parts), places.file(str(run.get("script") or ""))
    fits = len(left) + 2 + len(script) <= width
    first = f"{left}{script:>{width - len(left)}}" if script and fits else left
    yield beginning(first, Style.HEADING, len(_version(report)))
    if script and not fits:
        yield from plain(hang("  ", script, width))


def _table(report: Report, width: int) -> Iterator[Line]:
    """A line for each check, and what it measured."""
    informing = informing_codes(report)
    for family, checks in groupby(in_order(report.checks), key=lambda check: check.family):
        yield beginning(family.value, Style.HEADING, len(family.value))
        for check in checks:
            yield from _row(check, check.code in informing, width)
            yield from plain(_measured(check, width))


def _overview(report: Report, width: int) -> Iterator[Line]:
    """A row for each check that has something to say and no finding; of many others how many passed and were skipped,
    where nothing was found.
    """
    informing = informing_codes(report)
    few = len(report.checks) <= MOST_ROWS
    found_codes = {finding.code for finding in report.findings if finding.level is not Level.INFO}
    checks = [check for check in in_order(report.checks) if check.code not in found_codes]
    rows = [check for check in checks if few or check.outcome not in _SILENT or check.code in informing]
    silent = [check for check in checks if check not in rows and not found_codes]
    yield from plain(_passed([check for check in silent if check.outcome is Outcome.PASS], width))
    if skipped := sum(check.outcome is Outcome.SKIP for check in silent):
        yield Line(f"{skipped} more {'does' if skipped == 1 else 'do'} not apply (--verbose)")
    for check in rows:
        yield from _row(check, check.code in informing, width)


def _passed(checks: Sequence[CheckResult], width: int) -> Iterator[str]:
    """How many checks passed, of which families."""
    counts = Counter(check.family.value for check in checks)
    if counts:
        families = ", ".join(f"{family} {count}" for family, count in counts.items())
        yield from hang(f"passed  {len(checks):>3}  ", families, width)


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
