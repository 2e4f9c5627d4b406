"""The sections of a page: what each source of facts can show as pictures. Made only where a page was asked for."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ddpdoctor.cli.options import ReportOptions
from ddpdoctor.model import Finding, Level, Report, Source

if TYPE_CHECKING:
    from ddpdoctor.figures import Section

_ORDER = (Source.RUN, Source.LOG, Source.GROUP, Source.HOST)
"""What is nearest to the user's script comes first."""


def with_sections(
    report: Report,
    facts: Mapping[Source, Any],
    options: ReportOptions,
    log: Callable[[str], None],
) -> Report:
    """The report, with its pictures where one of the formats is a page.

    Args:
        facts: by source, as checks get them.
        log: is given the traceback of what broke; a page without a picture is still a report.
    """
    if not options.wants_page:
        return report
    sections: dict[str, Section] = {}
    culprits = _culprits(report.findings)
    for source in _ORDER:
        if source in facts:
            for section in _sections(source, facts[source], culprits, log):
                known = sections.get(section.title)
                sections[section.title] = _joined(known, section) if known else section
    return replace(report, sections=tuple(sections.values()))


def _sections(
    source: Source, facts: Any, culprits: Sequence[int], log: Callable[[str], None]
) -> Iterator[Section]:
    from ddpdoctor.group import figures as of_group  # what a page needs takes time to import
    from ddpdoctor.host import figures as of_host
    from ddpdoctor.logs import figures as of_log
    from ddpdoctor.trace import figures as of_run

    try:
        match source:
            case Source.RUN:
                yield from of_run.sections(facts, culprits)
            case Source.GROUP:
                yield from of_group.sections(facts)
            case Source.HOST:
                yield of_host.section(facts)
            case Source.LOG:
                yield from of_log.sections(facts)
    except Exception:  # noqa: BLE001 - as a check that breaks: the findings still count
        log(f"the page's sections on the {source.value} broke:\n{traceback.format_exc()}")


def _joined(first: Section, second: Section) -> Section:
    text = " ".join(filter(None, (first.text, second.text)))
    return replace(first, text=text, figures=first.figures + second.figures)


def _culprits(findings: Iterable[Finding]) -> tuple[int, ...]:
    """The ranks that findings point at, those of the first finding first."""
    worst = (finding for finding in findings if finding.level is not Level.INFO)
    return tuple(dict.fromkeys(rank for finding in worst for rank in finding.ranks))
