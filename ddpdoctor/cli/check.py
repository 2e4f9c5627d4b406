"""``ddpdoctor check``: options to a request, the examination, the report, the exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace

from ddpdoctor.cli.errors import INTERRUPTED
from ddpdoctor.cli.examination import examine
from ddpdoctor.cli.options import Options
from ddpdoctor.cli.output import open_output, write_out, write_report
from ddpdoctor.cli.request import request_of
from ddpdoctor.cli.signals import stopped_by_signals
from ddpdoctor.job.output import Output, Stream
from ddpdoctor.progress import Progress
from ddpdoctor.redact import clean
from ddpdoctor.report import Format


def run_check(options: Options) -> int:
    """Examine, write the report, and return the exit status.

    Raises:
        UsageError: an option asks for what cannot be.
    """
    request, format = request_of(options), Format(options.format)
    file = open_output(options.output)
    # Where the report goes to stdout for a program, nothing else may.
    beside_report = format is not Format.TERMINAL and file is None
    try:
        with stopped_by_signals(), Progress(quiet=options.quiet) as progress:
            passing = Passing(progress, beside_report)
            report = examine(replace(request, follow=passing.follow), progress)
    except KeyboardInterrupt:
        print("ddpdoctor: stopped; nothing of it is left running", file=sys.stderr)
        return INTERRUPTED
    if passing.said_something and file is None and not beside_report:
        write_out("\n")
    write_report(clean(report, os.environ), format, file, verbose=options.verbose)
    return report.exit_status


class Passing:
    """Passes a job's output on to where this command's report leaves room for it."""

    def __init__(self, progress: Progress, beside_report: bool) -> None:
        self._progress = progress
        self._out = sys.stderr if beside_report else sys.stdout
        self._output: Output | None = None

    def follow(self, find: Callable[[], Iterable[Stream]]) -> Output:
        """Begin."""
        self._output = Output(find, self._out.buffer, sys.stderr.buffer, self._progress.hide)
        return self._output

    @property
    def said_something(self) -> bool:
        """Whether the job wrote anything."""
        return self._output is not None and self._output.said_something
