"""What runs inside the user's process: it watches training, writes down what it saw, and takes no part.

Loaded by path under a private name, so that it needs nothing of the user's environment: relative imports, the
standard library and the user's torch. It issues no collective, draws no random number, prints nothing, and
writes only into its own folder. ``arm`` waits for torch to be imported; ``start`` begins at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

from .after_import import when_imported

if TYPE_CHECKING:
    from .session import Session

_sessions: list[Session] = []
_environ: dict[str, str] = {}
"""As the process began with it: a script may change it before it imports torch."""


def load() -> None:
    """Import what a session needs, in a process from which others are forked that begin one."""
    from . import patches
    from .session import Session  # noqa: F401

    for name in patches.names():
        importlib.import_module(f".patches.{name}", __package__)


def arm() -> None:
    """Begin once torch was imported; a process that never does costs nothing."""
    _environ.update(os.environ)
    if journal := os.environ.get("DDPDOCTOR_ORIGINALS"):
        _watch_files(journal)
    if os.environ.get("DDPDOCTOR_VIEW_OF_USER"):
        from .folder_renames import rename_folders

        rename_folders()
    if _environ.get("DDPDOCTOR_WORLD_SIZE", "0") != "0":
        from .rehearse.simulated_hosts import take_place

        take_place(os.environ, sys.argv)
        _environ.update(os.environ)
    when_imported("torch", start)


def _watch_files(journal: str) -> None:
    """Note what is downloaded, and keep what is changed where no private view does."""

    def watch(how: str) -> None:
        from .downloads import of_process  # not before: most processes download nothing

        getattr(of_process(journal), how)()

    when_imported("http.client", lambda: watch("watch_answers"))
    when_imported("huggingface_hub.file_download", lambda: watch("watch_hugging_face"))
    if os.sep not in (covered := _covered()):
        from .originals import keep_originals

        keep_originals(when_imported, covered)


def _covered() -> list[str]:
    """The folders that the job's private view covers; none in a process that a daemon or another host started."""
    covered = os.environ.get("DDPDOCTOR_COVERED")
    layers = os.path.dirname(os.environ["DDPDOCTOR_ORIGINALS"])
    if covered:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            if f"upperdir={layers}/" in mounts.read():
                return covered.split(os.pathsep)
    return []


def start() -> Session | None:
    """Begin to record, once in a process; None where there is no folder to write to."""
    from .options import RecorderOptions  # not before torch: every Python process of the job loads this file

    options = RecorderOptions.of_environment()
    if not os.path.isdir(options.record):
        return None
    if not _sessions:
        from .session import Session

        session = Session(options, sys.modules["torch"])
        _sessions.append(session)
        session.begin(_environ)
    return _sessions[0]
