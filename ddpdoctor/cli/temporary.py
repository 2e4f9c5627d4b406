"""The folder for temporary files: examined before anything is started there."""

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path

from ddpdoctor.cli.errors import UsageError, with_space
from ddpdoctor.redact import quote
from ddpdoctor.text import size

_USUAL = ("/tmp", "/var/tmp", "/usr/tmp")
_LEAST_BYTES = 16 << 20
"""Of free space: records, output and a checkpoint of the live group are about half of it."""
_ROOMY = f"a folder with {size(_LEAST_BYTES)} of free space"
_FICLONE = 0x40049409
_ROOM = 8 << 30
"""Bytes of free space in which what a script writes in its private view mostly fits."""


def temporary_folder() -> str:
    """The folder for temporary files; UsageError where it has no room for a run, or is not the one TMPDIR names."""
    named = next((name for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)), None)
    if named and (reason := _refusal(os.environ[named])):
        raise UsageError(f"{named}={quote(os.environ[named])} cannot be used: {reason}")
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError:
        folder = str(Path.cwd())
    if not named and folder == str(Path.cwd()) and folder not in _USUAL:
        raise UsageError(
            f"/tmp and /var/tmp cannot be written; name a folder for temporary files by TMPDIR, {_ROOMY}"
        )
    if reason := _refusal(folder):
        raise UsageError(f"temporary files cannot be written to {quote(folder)}: {reason}")
    return folder


def places() -> list[str]:
    """Where run folders are: the folder for temporary files, and another one that may lie on a larger disk."""
    return list(dict.fromkeys((tempfile.gettempdir(), "/var/tmp")))


def place_with_room() -> str:
    """The first of these places in which there is much room, and else the one with the most.

    What a script writes in its private view goes there, and must not fail for a small folder for temporary files
    where its own would have taken it. A place comes first whose files can share the blocks of those in the working
    directory: a large file that is changed in place, or added to, is copied there.
    """
    free = {place: _free(place) for place in sorted(places(), key=_shares_blocks, reverse=True)}
    return next((place for place, bytes_ in free.items() if bytes_ >= _ROOM), max(free, key=free.__getitem__))


def _shares_blocks(place: str) -> bool:
    """Whether the file system copies files of the working directory to this place without their blocks."""
    with contextlib.suppress(OSError, ImportError):
        import fcntl

        if os.stat(place).st_dev == os.stat(".").st_dev:  # noqa: PTH116
            with tempfile.TemporaryFile(dir=place) as one, tempfile.TemporaryFile(dir=place) as other:
                fcntl.ioctl(other, _FICLONE, one.fileno())
                return True
    return False


def _free(place: str) -> int:
    """Bytes; none of a folder that takes no files."""
    try:
        return shutil.disk_usage(place).free if os.access(place, os.W_OK | os.X_OK) else 0
    except OSError:
        return 0


def _refusal(folder: str) -> str | None:
    """Why a folder cannot hold a run; None where it can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
        usage = shutil.disk_usage(folder)
        if usage.total and usage.free < _LEAST_BYTES:
            raise OSError(errno.ENOSPC, "No space left on device")
    except OSError as failed:
        return f"{with_space(failed, folder)}; a run needs {_ROOMY}"
    return None
