"""Writes a command's result to stdout, whatever stdout is, or to a file."""

from __future__ import annotations

import errno
import io
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ddpdoctor.cli.errors import UsageError, with_space
from ddpdoctor.cli.options import STDOUT, ReportOptions
from ddpdoctor.excerpts import with_excerpts
from ddpdoctor.files import in_place_of
from ddpdoctor.job.output_forwarding import Output, Stream
from ddpdoctor.model import Report
from ddpdoctor.picture import FORMATS
from ddpdoctor.progress import Progress
from ddpdoctor.redact import clean, quote
from ddpdoctor.report import Format, render
from ddpdoctor.report.detail import verdict
from ddpdoctor.text import listing

if TYPE_CHECKING:
    from ddpdoctor.job.run import Follow

REPORTED_BY = "reported_by"
"""In ``run`` of a report that another host writes: the name of that host."""
_LEAST_BYTES = 1 << 20
"""Of free space, for a report."""


def write_out(text: str) -> None:
    """Write all of it; that the reader has gone changes nothing of the exit status. UsageError where stdout takes
    nothing, for instance on a full disk."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # an ASCII locale shows what it can
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_the_rest()
    except OSError as failed:
        _discard_the_rest()
        raise UsageError(f"stdout cannot be written: {failed.strerror}") from None


def _discard_the_rest() -> None:
    """Python would complain once more when it closes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def writing(path: str | Path, option: str = "--output") -> Iterator[None]:
    """Refuse, by a UsageError in one line, what cannot be written."""
    try:
        yield
    except OSError as failed:
        reason = with_space(failed, str(path))
        raise UsageError(f"{option} {quote(str(path))} cannot be written: {reason}") from None


def open_output(path: str | None, option: str = "--output") -> Path | None:
    """Refuse, by a UsageError, an output file that cannot be written before anything else is done."""
    if path is None:
        return None
    file = Path(path)
    if file.is_fifo():  # opened once, by the report: its reader leaves when it is closed
        return file
    with writing(path, option):
        is_new = not os.path.lexists(file)
        file.open("a").close()
        if is_new:
            file.unlink()
        usage = shutil.disk_usage(file.parent) if is_new or file.is_file() else None
        if usage and usage.total and usage.free < _LEAST_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    return file


def verify_picture(path: str) -> Path:
    """Refuse, by a UsageError, a picture that cannot be drawn before anything else is done."""
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"{quote(path)} ends with neither .png nor .svg")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UsageError("pictures require matplotlib: pip install matplotlib") from None
    return Path(path)


class ReportOutput:
    """Where the reports go, and around them what the job writes itself. A file that cannot be written, or two reports
    that go to the same place, are refused by a UsageError before anything else is done."""

    def __init__(self, options: ReportOptions) -> None:
        _verify_places(options)
        given = options.reports
        self._reports = [(format, None if file == STDOUT else open_output(file)) for format, file in given]
        self._verbose, self._quiet = options.verbose, getattr(options, "quiet", False)
        self._job: Output | None = None
        self._on_stdout = next((format for format, file in self._reports if file is None), None)

    def follow(self, progress: Progress) -> Follow:
        """What passes the output of a job on, beside a live line."""

        def begin(find: Callable[[], Iterable[Stream]]) -> Output:
            # Where a report goes to stdout for a program, nothing else may.
            out = sys.stdout if self._on_stdout in (None, Format.TERMINAL) else sys.stderr
            self._job = Output(find, progress.sink(out), progress.sink(sys.stderr))
            return self._job

        return begin

    def write(self, report: Report, *, silent: bool = False) -> None:
        """Write a report in each format, with the lines that it is about, and with what is secret masked; silent where
        a person who reads stdout is told nothing. UsageError where it cannot be written."""
        shown = presentable(report)
        self.write_each(
            lambda format, to_terminal: render(shown, format, verbose=self._verbose, to_terminal=to_terminal),
            silent=silent,
        )
        if self._on_stdout is None and not (silent or self._quiet):
            files = listing([quote(str(file))[1:-1] for _, file in self._reports])
            with suppress(OSError):  # nobody reads it
                print(f"{files}: {verdict(shown)}", file=sys.stderr)

    def write_each(self, text: Callable[[Format, bool], str], *, silent: bool = False) -> None:
        """Write a text in each format, to stdout last; silent where a person who reads stdout is told nothing. The text
        is made for a format, and for stdout or not. UsageError where it cannot be written."""
        for format, file in self._reports:
            if file is not None:
                write_text(text(format, False), file)
        if self._on_stdout is None or (silent and self._on_stdout is Format.TERMINAL):
            return
        if self._on_stdout is Format.TERMINAL and self._job and self._job.said_something:
            write_out("\n")
        write_out(text(self._on_stdout, True))


def presentable(report: Report) -> Report:
    """The report as the formats take it: with the lines that its findings are about, and with what is secret masked."""
    return clean(with_excerpts(report, Path.cwd()), os.environ)


def _verify_places(options: ReportOptions) -> None:
    """Refuse two reports in the same place, by a UsageError."""
    place, count = Counter(file for _, file in options.reports).most_common(1)[0]
    if count > 1 and place == STDOUT:
        raise UsageError("only one report can go to stdout; put --output FILE after the others' --format")
    if count > 1:
        raise UsageError(f"--output {quote(place)} is given for two reports")


def write_text(text: str, output: Path | None) -> None:
    """Write to the output file, or to stdout where there is none; UsageError where it cannot be written."""
    if output is None:
        write_out(text)
        return
    with writing(output), in_place_of(output) as draft:
        draft.write_text(text, encoding="utf-8")


def is_reported_elsewhere(report: Report) -> bool:
    """Whether another host writes the report; says so in a line."""
    if (host := report.run.get(REPORTED_BY)) is not None:
        print(f"ddpdoctor: the report of all hosts is on {host}, the host of rank 0", file=sys.stderr)
    return host is not None
