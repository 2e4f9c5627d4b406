"""``ddpdoctor check``: the examination, the report, the exit status."""

from __future__ import annotations

from dataclasses import replace

from ddpdoctor.cli.examination import examine
from ddpdoctor.cli.hosts import is_reported_elsewhere
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.cli.report_output import ReportOutput
from ddpdoctor.cli.request import request_of
from ddpdoctor.progress import Progress


def run_check(options: CheckOptions) -> int:
    """Examine, write the report, and return the exit status.

    Raises:
        UsageError: an option asks for what cannot be.
    """
    request, output = request_of(options), ReportOutput(options)
    with Progress(quiet=options.quiet) as progress:
        report = examine(replace(request, follow=output.follow(progress.hide)), progress)
    if is_reported_elsewhere(report):
        return report.exit_status
    output.write(report)
    return report.exit_status
