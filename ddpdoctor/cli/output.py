"""Writes a command's result to stdout, whatever stdout is, or to a file."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.model import Report
from ddpdoctor.redact import quote
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


def open_output(path: str | None, option: str = "--output") -> Path | None:
    """Refuse an output file that cannot be written before anything else is done.

    Raises:
        UsageError: it cannot.
    """
    if path is None:
        return None
    if Path(path).is_fifo():  # opened once, by the report: its reader leaves when it is closed
        return Path(path)
    try:
        with Path(path).open("a"):
            return Path(path)
    except OSError as failed:
        raise UsageError(f"{option} {quote(path)} cannot be written: {failed.strerror}") from None


def write_timeline(trace: Trace, file: Path | None) -> None:
    """Write what the ranks did and when, where that was asked for.

    Raises:
        UsageError: it cannot be written.
    """
    if file is None:
        return
    from ddpdoctor.trace import timeline

    try:
        timeline.write(trace, file)
    except OSError as failed:
        raise UsageError(f"--timeline {quote(str(file))} cannot be written: {failed.strerror}") from None


def write_report(report: Report, format: Format, output: Path | None, *, verbose: bool) -> None:
    """Write a cleaned report to the output file, or to stdout where there is none.

    Raises:
        UsageError: it cannot be written.
    """
    write_text(render(report, format, verbose=verbose, to_terminal=output is None), output)


def write_text(text: str, output: Path | None) -> None:
    """Write to the output file, or to stdout where there is none.

    Raises:
        UsageError: it cannot be written.
    """
    if output is None:
        write_out(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as failed:
        raise UsageError(f"--output {quote(str(output))} cannot be written: {failed.strerror}") from None


def split_selectors(selectors: tuple[str, ...]) -> tuple[str, ...]:
    """``("DD1,DD2", "host")`` as ``("DD1", "DD2", "host")``."""
    return tuple(one.strip() for text in selectors for one in text.split(",") if one.strip())
