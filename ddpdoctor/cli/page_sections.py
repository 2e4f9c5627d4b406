"""The sections of a page: what is known of a run, as pictures. Made only where a page was asked for."""

import traceback
from collections.abc import Callable
from dataclasses import replace

from ddpdoctor.cli.options import ReportOptions
from ddpdoctor.model import Level, Report
from ddpdoctor.trace import Trace


def with_sections(
    report: Report, trace: Trace | None, options: ReportOptions, log: Callable[[str], None]
) -> Report:
    """The report, with pictures of what was recorded or seen of a run, if anything was, where one of the formats is a
    page. The log is given the traceback of what broke; a page without a picture is still a report."""
    if trace is None or not options.wants_page:
        return report
    from ddpdoctor.trace.figures import sections  # what a page needs takes time to import

    worst = (finding for finding in report.findings if finding.level is not Level.INFO)
    culprits = dict.fromkeys(rank for finding in worst for rank in finding.ranks)
    try:
        return replace(report, sections=tuple(sections(trace, tuple(culprits))))
    except Exception:  # noqa: BLE001 - as a check that breaks: the findings still count
        log(f"the page's sections broke:\n{traceback.format_exc()}")
        return report
