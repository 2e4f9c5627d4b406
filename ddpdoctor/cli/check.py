"""``ddpdoctor check``: the examination, the report, the exit status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.cli.examination import examine
from ddpdoctor.cli.hosts import is_reported_elsewhere
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.cli.report_output import ReportOutput
from ddpdoctor.cli.request import Request, request_of
from ddpdoctor.model import Report
from ddpdoctor.progress import Progress
from ddpdoctor.report.comparison import compared

if TYPE_CHECKING:
    from ddpdoctor.cli.fix import Fixing


def run_check(options: CheckOptions) -> int:
    """Examine, write the report, and return the exit status.

    Raises:
        UsageError: an option asks for what cannot be.
    """
    earlier = _earlier(options)
    request, output = request_of(options), ReportOutput(options)
    with Progress(quiet=options.quiet) as progress:
        report = examined(replace(request, follow=output.follow(progress)), progress)
        if is_reported_elsewhere(report):
            return report.exit_status
        if earlier and options.compare:
            report = compared(examine(earlier, progress), report, options.compare)
    output.write(report)
    return report.exit_status


def _earlier(options: CheckOptions) -> Request | None:
    """The run that is compared with, judged by the same checks."""
    if options.compare is None:
        return None
    shared = {name: getattr(options, name) for name in ("select", "ignore", "format", "output", "quiet")}
    return request_of(CheckOptions(**shared, trace=options.compare))


def examined(request: Request, progress: Progress) -> Report:
    """The report of an examination, with patches where they are asked for.

    Raises:
        UsageError: patches cannot be made here.
    """
    fixing = _fixing(request)
    report = examine(fixing.examined if fixing else request, progress)
    return fixing.patched(report, progress) if fixing else report


def _fixing(request: Request) -> Fixing | None:
    """What makes patches, where they are asked for."""
    if not request.options.fix:
        return None
    from ddpdoctor.cli.fix import Fixing

    return Fixing(request)
