"""Writes a command's result to stdout, whatever stdout is."""

from __future__ import annotations

import io
import os
import sys

from ddpdoctor.cli.errors import UsageError


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
