"""``ddpdoctor check``: the examination, the report, the exit status."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ddpdoctor.cli.examination import examine
from ddpdoctor.cli.hosts import is_reported_elsewhere
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.cli.report_output import ReportOutput
from ddpdoctor.cli.request import Request, request_of
from ddpdoctor.progress import Progress

if TYPE_CHECKING:
    from ddpdoctor.cli.fix import Fixing


def run_check(options: CheckOptions) -> int:
    """Examine, write the report, and return the exit status.

    Raises:
        UsageError: an option asks for what cannot be.
    """
    request, output = request_of(options), ReportOutput(options)
    fixing = _fixing(request)
    request = fixing.examined if fixing else request
    with Progress(quiet=options.quiet) as progress:
        report = examine(replace(request, follow=output.follow(progress.hide)), progress)
        report = fixing.patched(report, progress) if fixing else report
    if is_reported_elsewhere(report):
        return report.exit_status
    output.write(report)
    return report.exit_status


def _fixing(request: Request) -> Fixing | None:
    """What makes patches, where they are asked for."""
    if not request.options.fix:
        return None
    from ddpdoctor.cli.fix import Fixing

    return Fixing(request)
