"""Two runs side by side: which findings are gone, new or still there, and where a training step goes in both."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ddpdoctor.figures import Figure, Row, Section, Strips, Table, Tone, side_by_side
from ddpdoctor.model import Finding, Level, Outcome, Report
from ddpdoctor.report.detail import ranks_of_run, verdict
from ddpdoctor.text import duration, listing, shorten

_STATES = ("gone", "new", "still there")
_MOST = 100
"""Findings of the table."""


def compared(before: Report, after: Report, name: str) -> Report:
    """The report of a run with what an earlier one, of this name, had."""
    states = _states(before, after)
    each = {state: [finding.code for finding, its in states if its == state] for state in _STATES}
    codes = {state: list(dict.fromkeys(its)) for state, its in each.items()}
    words = "; ".join(f"{state}: {listing(codes[state])}" for state in _STATES if codes[state])
    note = f"compared with {name}: {words or 'neither run has a finding'}"
    run = {**after.run, "compared": {state.replace(" ", "_"): found for state, found in codes.items()}}
    sections = after.sections
    if sections or before.sections:
        earlier = map(_earlier, before.sections)
        sections = (_section(before, after, states, name), *sections, *earlier)
    return replace(after, run=run, notes=(note, *after.notes), sections=sections)


def _states(before: Report, after: Report) -> list[tuple[Finding, str]]:
    """Each finding above information of the checks that judged both runs, and whether the other run has it, too."""
    judged = _judged(before) & _judged(after)
    first, second = (_by_key(it for it in report.findings if it.code in judged) for report in (before, after))
    gone = [(finding, "gone") for key, finding in first.items() if key not in second]
    there = [(finding, "still there" if key in first else "new") for key, finding in second.items()]
    return [*gone, *there]


def _judged(report: Report) -> set[str]:
    return {check.code for check in report.checks if check.outcome not in (Outcome.SKIP, Outcome.ERROR)}


def _by_key(findings: Iterable[Finding]) -> dict[object, Finding]:
    """By check and place, of which the line may have moved."""
    found: dict[object, Finding] = {}
    for finding in findings:
        if finding.level is not Level.INFO:
            where = finding.where
            found.setdefault((finding.code, where and (where.file, where.function)), finding)
    return found


def _earlier(section: Section) -> Section:
    figures = tuple(replace(figure, title=f"Before: {figure.title}") for figure in section.figures)
    return replace(section, title=f"Before: {section.title}", figures=figures)


def _section(before: Report, after: Report, states: Sequence[tuple[Finding, str]], name: str) -> Section:
    facts = (("verdict", verdict), ("ranks", ranks_of_run), ("steps", _steps))
    told = ((what, tell(before), tell(after)) for what, tell in facts)
    rows = tuple(row for row in told if any(row[1:]))
    found = tuple((state, finding.code, shorten(finding.headline)) for finding, state in states[:_MOST])
    figures: list[Figure] = [Table("Both runs", ("what", "before", "after"), rows)]
    if found:
        figures.append(Table("Findings of both runs", ("now", "check", "finding"), found))
    return Section("Before and after", f"Before: {name}.", (*figures, *_steps_of_both(before, after)))


def _steps(report: Report) -> str:
    return str((report.run.get("trained") or {}).get("steps", ""))


def _steps_of_both(before: Report, after: Report) -> Iterator[Strips]:
    """The parts of a step on average over the ranks, over one axis, where both runs tell them."""
    titles = "Where a training step goes"
    both = [_strips(report, titles) for report in (before, after)]
    first, second = both
    if first is None or second is None:
        return
    rows = tuple(_row(name, each) for name, each in (("before", first), ("after", second)))
    end = max(span.end for row in rows for span in row.spans)
    legend = tuple(dict.fromkeys((*first.legend, *second.legend)))
    yield Strips(f"{titles}, mean of the ranks shown", rows, end=end, unit="s", legend=legend)


def _strips(report: Report, title: str) -> Strips | None:
    figures = (figure for section in report.sections for figure in section.figures)
    return next((each for each in figures if isinstance(each, Strips) and each.title == title), None)


def _row(name: str, figure: Strips) -> Row:
    seconds: dict[Tone, float] = {}
    for row in figure.rows:
        for span in row.spans:
            seconds[span.tone] = seconds.get(span.tone, 0.0) + (span.end - span.begin) / len(figure.rows)
    words = dict(figure.legend)
    parts = ((length, tone, f"{words[tone]}: {duration(length)}") for tone, length in seconds.items())
    return Row(name, side_by_side(*parts), duration(sum(seconds.values())))
