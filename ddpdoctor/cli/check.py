"""``ddpdoctor check``: the examination, the report, the exit status."""

from dataclasses import replace

from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.cli.report_output import ReportOutput, is_reported_elsewhere
from ddpdoctor.cli.request import Request, request_of
from ddpdoctor.model import Report
from ddpdoctor.progress import Progress


def run_check(options: CheckOptions) -> int:
    """Examine, write the report, and return the exit status; UsageError where an option asks for what cannot be."""
    earlier = _earlier(options)
    request, output = request_of(options), ReportOutput(options)
    with Progress(quiet=options.quiet) as progress:
        report = examined(replace(request, follow=output.follow(progress)), progress)
        if is_reported_elsewhere(report):
            return report.exit_status
        if earlier and options.compare:
            from ddpdoctor.report.comparison import compared

            report = compared(_examine(earlier, progress), report, options.compare)
    output.write(report)
    return report.exit_status


def _earlier(options: CheckOptions) -> Request | None:
    """The run that is compared with, judged by the same checks."""
    if options.compare is None:
        return None
    shared = {name: getattr(options, name) for name in ("select", "ignore", "format", "output", "quiet")}
    return request_of(CheckOptions(**shared, trace=options.compare))


def examined(request: Request, progress: Progress) -> Report:
    """The report of an examination, with patches where asked for; UsageError where they cannot be made here."""
    if not request.options.fix:
        return _examine(request, progress)
    from ddpdoctor.cli.fix import Fixing

    fixing = Fixing(request)
    return fixing.patched(_examine(fixing.examined, progress), progress)


def _examine(request: Request, progress: Progress) -> Report:
    if request.options.no_run:
        from ddpdoctor.cli.source_judging import examine_sources

        return examine_sources(request)
    from ddpdoctor.cli.examination import examine  # with all that runs a job

    return examine(request, progress)
