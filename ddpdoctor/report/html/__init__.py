"""The report as a page: one file without scripts, fonts or anything else from a network.

``page.html`` and ``figures.html`` are the page; what is here gives them what they show, in bounds.
"""

import platform
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any, TypeVar

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from ddpdoctor.figures import Figure, Section
from ddpdoctor.model import CheckResult, Excerpt, Finding, Level, Mark, Outcome, Report
from ddpdoctor.report import detail
from ddpdoctor.report.excerpt import dedented
from ddpdoctor.report.html import drawing
from ddpdoctor.report.places import Places
from ddpdoctor.text import LONGEST_COMMAND, fold_ranks, quote_command, ranks_phrase, shorten

_ROOM, _ROOM_OF_FINDINGS = 1_000_000, 600_000
"""Characters of all figures, and of all findings: a page stays small whatever a run did."""
_LIMITS = {"also": 20, "evidence": 32, "text": 2000}
"""Of a block: findings told in short, entries of evidence, and characters of a text."""
LONGEST_EVIDENCE, LONGEST_SUMMARY, SHORT = 4000, 200, 12
"""Characters of an entry, of the line that stands for several, and lines that need not be folded."""
_MOST_NOTES, _MOST_LINKS = 40, 30
_SILENT = {Outcome.PASS: "passed", Outcome.SKIP: "skipped"}
_CODE = re.compile(
    r"""(with|if|for|while|def|class|try|else)\b.*:$  # above indented lines
    | [\w.]+\(.*\)$  # a call
    | [\w.\[\]"']+(,\ [\w.]+)*\ [-+*/]?=\ \S.*$  # an assignment
    | (import|from\ \S+\ import)\ [\w.*]+(,\ \w+)*$
    | (ddpdoctor|torchrun|export|pip|ulimit|git)\ .*$""",
    re.VERBOSE,
)
"""A line of Python, or a command."""
_T = TypeVar("_T")


def render(report: Report) -> str:
    """The report as an HTML document."""
    page, run, title = _page(), report.run, _title(report)
    loud = detail.by_check(finding for finding in report.findings if finding.level is not Level.INFO)
    links = [(_id(findings), f"{findings[0].code}: {shorten(findings[0].headline, 60)}") for findings in loud]
    links = links[:_MOST_LINKS] + [(_anchor(section.title), section.title) for section in report.sections]
    links += [("checks", "Checks")] if report.checks else []
    facts = (
        time.strftime("%Y-%m-%d %H:%M", time.localtime(report.since or None)),
        platform.node(),
        detail.ranks_of_run(report),
        run.get("backend"),
        f"torch {run['torch']}" if run.get("torch") else "",
        f"Python {platform.python_version()}",
        f"ddpdoctor {report.version}",
    )
    command = quote_command(("ddpdoctor", *report.command), LONGEST_COMMAND)
    header = page.header(title, facts, detail.verdict(report), _tone(report), command, links)
    notes = page.notes(report.notes[:_MOST_NOTES], run.get("folder"))
    parts = (_findings(report), *_sections(report.sections), _checks(report), notes)
    return str(page.document(title, header, Markup().join(parts)))


def notebook(report: Report) -> str:
    """The same for the output of a cell: in a frame of its own, so that neither changes the other's looks."""
    page, title = escape(render(report)), escape(_title(report))
    style = "width:100%;height:40rem;border:0"
    return f'<iframe srcdoc="{page}" sandbox="allow-popups" style="{style}" title="{title}"></iframe>'


def sections_page(title: str, text: str, sections: Sequence[Section]) -> str:
    """A page that shows sections alone, as of a benchmark."""
    page, links = _page(), [(_anchor(section.title), section.title) for section in sections]
    facts = (time.strftime("%Y-%m-%d %H:%M"), platform.node(), *text.splitlines())
    header = page.header(title, facts, "", "", "", links)
    return str(page.document(title, header, Markup().join(_sections(sections))))


@cache
def _page(name: str = "page.html") -> Any:
    """The parts of a template, each a function."""
    folder = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["style"] = Markup((folder / "style.css").read_text(encoding="utf-8"))
    environment.filters |= {name: getattr(drawing, name) for name in _OF_DRAWING} | {
        "anchor": _anchor,
        "dedented": dedented,
        "fold": detail.fold_evidence,
        "in_short": _in_short,
        "kind": lambda figure: type(figure).__name__,
        "lines": _lines,
        "outcome": detail.patch_outcome,
        "prose": _prose,
        "ranks": fold_ranks,
        "ranks_phrase": ranks_phrase,
        "seen": _seen,
        "shorten": shorten,
        "sum_of_marks": lambda excerpts: sum(len(excerpt.marks) for excerpt in excerpts),
    }
    return environment.get_template(name).module


_OF_DRAWING = (
    *("chart", "edges", "folded_calls", "in_words", "places"),
    *("spans", "unit_name", "values_of_strips"),
)


def _fitting(items: Sequence[_T], draw: Callable[[_T], Markup], room: int, left_out: str) -> Markup:
    """The first of some items, as far as there is room for so many characters; then how many more there are."""
    fit: list[Markup] = []
    for item in items:
        markup = draw(item)
        room -= len(markup)
        if room < 0:
            fit.append(_page().left_out(len(items) - len(fit), left_out))
            break
        fit.append(markup)
    return Markup().join(fit)


def _title(report: Report) -> str:
    about = str(report.run.get("script") or "") or ", ".join(map(str, report.run.get("files", ())))
    name = shorten(about if " " in about else PurePath(about).name)
    command = next(iter(report.command), "check")
    return f"ddpdoctor {command}{f': {name}' if name else ''}"


def _tone(report: Report) -> str:
    levels = {finding.level for finding in report.findings}
    if Level.FAIL in levels:
        return "fail"
    return "warn" if Level.WARN in levels or report.exit_status else "pass"


def _anchor(title: str) -> str:
    return "-".join(title.lower().split())


def _id(findings: Sequence[Finding]) -> str:
    return f"finding-{_anchor(findings[0].code)}"


def _findings(report: Report) -> Markup:
    """The cause first, the others of a check with it, information folded."""
    page, places = _page(), Places.of(report)
    loud = detail.by_check(finding for finding in report.findings if finding.level is not Level.INFO)
    quiet = detail.by_check(finding for finding in report.findings if finding.level is Level.INFO)

    def block(findings: Sequence[Finding]) -> Markup:
        anchor = _id(findings) + ("" if findings[0].level is not Level.INFO else "-information")
        drawn: Markup = page.block(findings, places, anchor, _LIMITS)
        return drawn

    more = "more checks found problems; their lines are below."
    first = _fitting(loud, block, _ROOM_OF_FINDINGS, more)
    others = _fitting(quiet, block, _ROOM_OF_FINDINGS // 4, "more")
    found: Markup = page.findings(first, others, len(quiet))
    return found


def _lines(excerpt: Excerpt) -> Iterator[tuple[str, Mark | None]]:
    marks = {mark.line: mark for mark in excerpt.marks}
    return ((line, marks.get(number)) for number, line in enumerate(excerpt.lines, excerpt.first))


def _seen(text: str) -> tuple[str, str, bool]:
    """The line that stands for an entry, the rest of several, and whether that is shown at once."""
    text = text if len(text) <= LONGEST_EVIDENCE else f"{text[:LONGEST_EVIDENCE]} ..."
    first, _, rest = text.partition("\n")
    last = rest.rpartition("\n")[2]
    raised = first.startswith("Traceback") and len(last) <= LONGEST_SUMMARY
    return f"{first} ... {last}" if raised else first, rest, raised and rest.count("\n") < SHORT


def _prose(text: str) -> Iterator[tuple[bool, str]]:
    """Sentences, and indented lines as something to copy."""

    def is_code(line: str) -> bool:
        return line.startswith(" ") or detail.COMMENT in line or _CODE.match(line) is not None

    for copied, lines in groupby(text[: _LIMITS["text"]].split("\n"), key=is_code):
        block = list(lines)
        if copied:
            margin = min(len(line) - len(line.lstrip()) for line in block)
            yield True, "\n".join(line[margin:] for line in block)
        else:
            yield from ((False, line) for line in block if line)


def _in_short(finding: Finding, places: Places) -> str:
    at = [places.place(finding.where)] if finding.where else []
    at += [ranks_phrase(finding.ranks)] if finding.ranks else []
    return ": ".join(filter(None, [", ".join(at), shorten(finding.headline)]))


def _sections(sections: Sequence[Section]) -> Iterator[Markup]:
    """Figures that show something, with one legend where their colours mean the same."""
    page, room = _page(), _ROOM
    for section in sections:
        figures = [figure for figure in section.figures if drawing.says_something(figure)]
        shared = drawing.shared_legend(figures)

        def draw(figure: Figure, shared: object = shared) -> Markup:
            drawn: Markup = _page("figures.html").figure(figure, () if shared else drawing.legend_of(figure))
            return drawn

        drawn = _fitting(figures, draw, room, "more figures would make the page too large.")
        room -= len(drawn)
        if drawn or section.text:
            yield page.section(section.title, section.text, shared, drawn)


def _checks(report: Report) -> Markup:
    """A line for each check; those that found nothing are folded."""
    if not report.checks:
        return Markup()
    loud = [check for check in report.checks if check.outcome not in _SILENT]
    informing = detail.informing_codes(report)
    silent = detail.in_order(check for check in report.checks if check.outcome in _SILENT)
    families = [
        (family.value, _counts(rows, informing), rows)
        for family, group in groupby(silent, key=lambda check: check.family)
        if (rows := list(group))
    ]
    checks: Markup = _page().checks(loud, families)
    return checks


def _counts(checks: Sequence[CheckResult], informing: frozenset[str]) -> str:
    counts = Counter(check.outcome for check in checks)
    words = [f"{counts[outcome]} {name}" for outcome, name in _SILENT.items() if counts[outcome]]
    informs = sum(check.code in informing for check in checks)
    return ", ".join([*words, *([f"{informs} information"] if informs else [])])
