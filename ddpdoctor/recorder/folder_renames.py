"""Renames folders in the private view of a user, in which the kernel does not rename one that was there before.

Overlayfs answers EXDEV there, which a script would see only in a check. What ``mv`` does then is done here: the folder
is copied, and removed.
"""

import errno
import os
import shutil
from collections.abc import Callable
from typing import Any

from .patch import around


def rename_folders() -> None:
    """Have both functions of ``os`` do it."""
    for name in ("rename", "replace"):
        setattr(os, name, around(_rename)(getattr(os, name)))


def _rename(original: Callable[..., None], src: Any, dst: Any, **folders: Any) -> None:
    try:
        original(src, dst, **folders)
    except OSError as error:
        if error.errno != errno.EXDEV or folders or not _is_on_one_disk(src, dst):
            raise
        draft = f"{os.fsdecode(dst)}.{os.getpid()}"
        shutil.copytree(src, draft, symlinks=True)
        original(draft, dst)
        shutil.rmtree(src)


def _is_on_one_disk(source: Any, target: Any) -> bool:
    """Whether a folder would be renamed without the view."""
    above = os.path.dirname(os.path.abspath(os.fsdecode(target)))
    return (
        os.path.isdir(source)
        and not os.path.islink(source)
        and os.stat(source).st_dev == os.stat(above).st_dev
    )
