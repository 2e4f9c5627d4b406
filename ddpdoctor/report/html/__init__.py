"""The report as a page: one file without scripts, fonts or anything else from a network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path, PurePath
from urllib.parse import unquote

from ddpdoctor.figures import Section
from ddpdoctor.model import CheckResult, Family, Level, Outcome, Report
from ddpdoctor.report.detail import informing_codes, ranks_of_run, verdict
from ddpdoctor.report.html.drawing import draw
from ddpdoctor.report.html.finding import findings_part
from ddpdoctor.report.html.markup import Markup, fitting, tag, together
from ddpdoctor.text import LONGEST_COMMAND, quote_command, shorten

_ROOM = 1_000_000
"""Characters of all figures."""
_MOST_NOTES = 40
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Of security: whatever a text on the page may be, the browser runs nothing and loads nothing."""


def render(report: Report) -> str:
    """The report as an HTML document."""
    parts = (findings_part(report), _sections(report.sections), _checks(report), _notes(report))
    return document(_title(report), together(_header(report), tag("main", *parts)))


def notebook(report: Report) -> str:
    """The same for the output of a cell: in a frame of its own, so that neither changes the other's looks."""
    style = "width:100%;height:40rem;border:0"
    return tag("iframe", srcdoc=render(report), sandbox="allow-popups", style=style, title=_title(report))


def sections_page(title: str, text: str, sections: Sequence[Section]) -> str:
    """A page that shows sections alone, as of a benchmark."""
    header = tag("header", tag("h1", title), [tag("div", line, class_="faint") for line in text.splitlines()])
    return document(title, together(header, tag("main", _sections(sections))))


def document(title: str, body: Markup) -> str:
    """A whole HTML document."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", _style()),
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', body), lang='en')}\n"


@cache
def _style() -> Markup:
    return Markup((Path(__file__).parent / "style.css").read_text(encoding="utf-8"))


def _title(report: Report) -> str:
    about = str(report.run.get("script") or "") or ", ".join(map(str, report.run.get("files", ())))
    name = shorten(about if " " in about else PurePath(about).name)
    command = next(iter(report.command), "check")
    return f"ddpdoctor {command}{f': {name}' if name else ''}"


def _header(report: Report) -> Markup:
    run = report.run
    facts = [
        ranks_of_run(report),
        str(run.get("backend") or ""),
        f"torch {run['torch']}" if run.get("torch") else "",
        f"ddpdoctor {report.version}",
    ]
    return tag(
        "header",
        tag("h1", _title(report)),
        tag("ul", [tag("li", fact) for fact in facts if fact], class_="facts faint"),
        tag("div", verdict(report), class_=f"verdict {_tone(report)}"),
        _contents(report),
    )


def _tone(report: Report) -> str:
    levels = {finding.level for finding in report.findings}
    if Level.FAIL in levels:
        return "fail"
    return "warn" if Level.WARN in levels or report.exit_status else "pass"


def _contents(report: Report) -> Markup | None:
    """Links to what is below, where that is more than one thing."""
    titles = [section.title for section in report.sections]
    if not titles:
        return None
    links = [*titles, *(["Checks"] if report.checks else [])]
    items = [tag("li", tag("a", title, href=f"#{_anchor(title)}")) for title in links]
    return tag("nav", tag("ul", items), aria_label="Contents")


def _anchor(title: str) -> str:
    return "-".join(title.lower().split())


def _sections(sections: Sequence[Section]) -> list[Markup]:
    drawn: list[Markup] = []
    for section in sections:
        drawn.append(_section(section, _ROOM - sum(map(len, drawn))))
    return drawn


def _section(section: Section, room: int) -> Markup:
    anchor = _anchor(section.title)
    link = (
        tag(
            "p",
            tag("a", unquote(section.link), href=section.link),
            " has every event; ui.perfetto.dev opens it.",
        )
        if section.link
        else None
    )
    return tag(
        "section",
        tag("h2", section.title, id=anchor),
        tag("p", section.text) if section.text else None,
        link,
        fitting(section.figures, draw, room, "more figures would make the page too large."),
        aria_labelledby=anchor,
    )


def _checks(report: Report) -> Markup | None:
    """A line for each check; those that found nothing are folded."""
    if not report.checks:
        return None
    informing = informing_codes(report)
    silent = (Outcome.PASS, Outcome.SKIP)
    loud = [check for check in report.checks if check.outcome not in silent]
    return tag(
        "section",
        tag("h2", "Checks", id="checks"),
        _table(loud) if loud else None,
        [_family(family, checks, informing) for family, checks in _by_family(report.checks)],
        aria_labelledby="checks",
    )


def _by_family(checks: Sequence[CheckResult]) -> Iterator[tuple[Family, list[CheckResult]]]:
    order = list(Family)
    rows = sorted(checks, key=lambda check: (order.index(check.family), check.code))
    for family, group in groupby(rows, key=lambda check: check.family):
        if silent := [check for check in group if check.outcome in (Outcome.PASS, Outcome.SKIP)]:
            yield family, silent


def _family(family: Family, checks: Sequence[CheckResult], informing: frozenset[str]) -> Markup:
    counts = Counter(check.outcome for check in checks)
    names = {Outcome.PASS: "passed", Outcome.SKIP: "skipped"}
    words = ", ".join(f"{counts[outcome]} {name}" for outcome, name in names.items() if counts[outcome])
    informs = sum(check.code in informing for check in checks)
    if informs:
        words += f", {informs} for information"
    return tag("details", tag("summary", tag("b", family.value), f" {words}"), _table(checks))


def _table(checks: Sequence[CheckResult]) -> Markup:
    rows = [
        tag(
            "tr",
            tag("td", check.outcome.value),
            tag("td", check.code),
            tag("td", shorten(check.text, 400), class_="wrap"),
            tag("td", f"{check.seconds:.1f} s" if check.seconds >= 0.05 else "", class_="time"),
        )
        for check in checks
    ]
    return tag("table", tag("tbody", rows), class_="checks")


def _notes(report: Report) -> Markup:
    notes = [tag("p", shorten(note, 1000), class_="note") for note in report.notes[:_MOST_NOTES]]
    if report.run.get("folder"):
        notes.append(tag("p", "Kept: ", tag("code", str(report.run["folder"])), class_="note"))
    command = quote_command(("ddpdoctor", *report.command), LONGEST_COMMAND)
    return tag("footer", notes, tag("p", "Command: ", tag("code", command), class_="note"))
