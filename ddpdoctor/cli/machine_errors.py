"""What the machine refuses, in one sentence: a full disk, a read-only one, no more files or memory."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

from ddpdoctor.redact import quote
from ddpdoctor.text import size

_OF_FILES = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE, errno.EACCES, errno.EPERM}
MACHINE_ERRORS = frozenset({*_OF_FILES, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""errno values with which the machine refuses what any program may ask of it."""


def machine_error(failed: OSError) -> str:
    """What the machine refused, with the path and, of a full disk, the space that is left there."""
    path = failed.filename if isinstance(failed.filename, str) else ""
    return f"{quote(path)}: {with_space(failed, path)}" if path else with_space(failed, tempfile.gettempdir())


def with_space(failed: OSError, path: str) -> str:
    """``No space left on device (0 B free)``."""
    text = failed.strerror or str(failed)
    if failed.errno not in (errno.ENOSPC, errno.EDQUOT):
        return text
    place = next(
        (folder for folder in (Path(path), *Path(path).absolute().parents) if folder.is_dir()), Path("/")
    )
    return f"{text} ({size(shutil.disk_usage(place).free)} free in {place})"
