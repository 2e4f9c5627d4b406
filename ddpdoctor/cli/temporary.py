"""The folder for temporary files: examined before anything is started there."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from ddpdoctor.cli.errors import UsageError
from ddpdoctor.cli.machine_errors import with_space
from ddpdoctor.redact import quote
from ddpdoctor.text import size

_USUAL = ("/tmp", "/var/tmp", "/usr/tmp")
_LEAST_BYTES = 16 << 20
"""Of free space: records, output and a checkpoint of the live group are about half of it."""


def temporary_folder() -> str:
    """The folder for temporary files, which has room for a run.

    Raises:
        UsageError: it has none, or it is not the one that TMPDIR names.
    """
    named = next((name for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)), None)
    if named and (reason := _refusal(os.environ[named])):
        raise UsageError(f"{named}={quote(os.environ[named])} cannot be used: {reason}")
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        folder = str(Path.cwd())
    if not named and folder == str(Path.cwd()) and folder not in _USUAL:
        raise UsageError(
            "/tmp and /var/tmp cannot be written; name another folder for temporary files by TMPDIR"
        )
    if reason := _refusal(folder):
        raise UsageError(f"temporary files cannot be written to {quote(folder)}: {reason}")
    return folder


def _refusal(folder: str) -> str | None:
    """Why a folder cannot hold a run; None where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        usage = shutil.disk_usage(folder)
        if usage.total and usage.free < _LEAST_BYTES:
            raise OSError(errno.ENOSPC, f"a run needs {size(_LEAST_BYTES)}")
    except OSError as failed:
        return with_space(failed, folder)
    return None
