"""Writes a command's result to stdout, whatever stdout is, or to a file."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.options import ReportOptions
from ddpdoctor.job.output_forwarding import Output, Stream
from ddpdoctor.job.run import Follow
from ddpdoctor.model import Report
from ddpdoctor.picture import FORMATS
from ddpdoctor.redact import clean, quote
from ddpdoctor.report import Format, render
from ddpdoctor.trace import Trace


def write_out(text: str) -> None:
    """Write all of it; that the reader has gone changes nothing of the exit status.

    Raises:
        UsageError: stdout takes nothing, for instance on a full disk.
    """
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
    """Refuse what cannot be written in one line.

    Raises:
        UsageError: it cannot.
    """
    try:
        yield
    except OSError as failed:
        raise UsageError(f"{option} {quote(str(path))} cannot be written: {failed.strerror}") from None


def open_output(path: str | None, option: str = "--output") -> Path | None:
    """Refuse an output file that cannot be written before anything else is done.

    Raises:
        UsageError: it cannot.
    """
    if path is None:
        return None
    if Path(path).is_fifo():  # opened once, by the report: its reader leaves when it is closed
        return Path(path)
    with writing(path, option), Path(path).open("a"):
        return Path(path)


def verify_picture(path: str) -> Path:
    """Refuse a picture that cannot be drawn before anything else is done.

    Raises:
        UsageError: it cannot.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(f"{quote(path)} ends with neither .png nor .svg")
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UsageError("pictures require matplotlib: pip install matplotlib") from None
    return Path(path)


def write_timeline(trace: Trace, file: Path | None) -> None:
    """Write what the ranks did and when, where that was asked for.

    Raises:
        UsageError: it cannot be written.
    """
    if file is None:
        return
    from ddpdoctor.trace import timeline

    with writing(file, "--timeline"):
        timeline.write(trace, file)


class ReportOutput:
    """Where a report goes, and around it what the job writes itself.

    Raises:
        UsageError: the file cannot be written; so it is refused before anything else is done.
    """

    def __init__(self, options: ReportOptions) -> None:
        self._options, self._file = options, open_output(options.output)
        self._job: Output | None = None
        # Where the report goes to stdout for a program, nothing else may.
        self._has_stdout = options.format is not Format.TERMINAL and self._file is None

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads it on stdout."""
        return self._options.format is Format.TERMINAL and self._file is None

    def follow(self, before_first: Callable[[], object]) -> Follow:
        """What passes the output of a job on; ``before_first`` is called before it writes anything."""

        def begin(find: Callable[[], Iterable[Stream]]) -> Output:
            out = sys.stderr if self._has_stdout else sys.stdout
            self._job = Output(find, out.buffer, sys.stderr.buffer, before_first)
            return self._job

        return begin

    def write(self, report: Report) -> None:
        """Write a report, with what is secret masked.

        Raises:
            UsageError: it cannot be written.
        """
        if self.is_terminal and self._job and self._job.said_something:
            write_out("\n")
        cleaned, to_terminal = clean(report, os.environ), self._file is None
        text = render(cleaned, self._options.format, verbose=self._options.verbose, to_terminal=to_terminal)
        write_text(text, self._file)


def write_text(text: str, output: Path | None) -> None:
    """Write to the output file, or to stdout where there is none.

    Raises:
        UsageError: it cannot be written.
    """
    if output is None:
        write_out(text)
        return
    with writing(output):
        output.write_text(text, encoding="utf-8")
