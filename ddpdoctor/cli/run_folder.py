"""The folder of a run: what its processes write, and what helps to find out why."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from ddpdoctor.cli.request import Request
from ddpdoctor.cli.temporary import place_with_room, places
from ddpdoctor.model import Report
from ddpdoctor.redact import mask_files

PREFIX = "ddpdoctor-"
_MARKER = ".ddpdoctor-run"
"""A file that only run folders have. Who uses the folder holds a lock on it, which ends with the process."""
KEPT_SECONDS = 14 * 24 * 3600.0
"""After which a later run removes a folder that was kept."""


class RunFolder:
    """A new folder; a context manager that removes it, unless something was found, or it was asked for."""

    def __init__(self, request: Request) -> None:
        remove_old()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place_with_room()))
        (self.path / _MARKER).touch()
        self._lock = hold(self.path)
        self._request = request
        self._stays = False

    def keep(self, report: Report, here: bool = False) -> Report:
        """The report, which names the folder where it stays, with its size; that then moves ``here``, into the current
        directory."""
        wanted = report.exit_status != 0 or self._request.options.keep
        self._stays = wanted and any(file.name != _MARKER for file in self.path.iterdir())
        if not self._stays:
            return replace(report, run={**report.run, "folder": None})
        mask_files(self.path, self._request.host.environ)
        if here:
            (self.path / _MARKER).unlink()  # what was asked for here is the user's
            name = time.strftime("ddpdoctor-hang-%Y%m%d-%H%M%S")
            self.path = Path(shutil.move(self.path, Path.cwd() / name))
        kept = {"folder": str(self.path), "folder_bytes": size_of(self.path)}
        return replace(report, run=report.run | kept)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._stays:
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)


@dataclass(frozen=True)
class KeptFolder:
    """A run folder that stayed after its run."""

    path: Path
    age: float
    """Seconds since its run began."""
    bytes: int
    in_use: bool = False


def kept_folders(older_than: float = 0.0) -> list[KeptFolder]:
    """The run folders of this user that are older than this, the oldest first."""
    kept = []
    for path in (path for place in places() for path in Path(place).glob(f"{PREFIX}*")):
        if (age := _age(path)) is not None and age >= older_than:
            kept.append(KeptFolder(path, age, size_of(path), _is_in_use(path)))
    return sorted(kept, key=lambda folder: -folder.age)


def remove(folder: KeptFolder) -> bool:
    """Remove a folder that nobody uses; whether it is gone."""
    with contextlib.suppress(OSError), _locked(folder.path / _MARKER):
        shutil.rmtree(folder.path, ignore_errors=True)
    return not folder.path.exists()


def remove_old() -> None:
    """Remove what was kept for too long."""
    for folder in kept_folders(KEPT_SECONDS):
        remove(folder)


def hold(folder: Path) -> int:
    """Have a run folder not removed as long as the file that is returned is open; -1 where there is nothing to hold."""
    lock = -1
    with contextlib.suppress(OSError):  # it was moved or copied, or its file system has no locks
        lock = os.open(folder / _MARKER, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return lock


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder; links are not followed."""
    sizes = []
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                sizes.append(os.lstat(os.path.join(place, name)).st_size)  # noqa: PTH118 - of many files
    return sum(sizes)


def _age(folder: Path) -> float | None:
    """Seconds since a run folder was made; None of what is none, or another user's."""
    try:
        status, marker = folder.lstat(), (folder / _MARKER).lstat()
    except OSError:
        return None
    own = status.st_uid == os.getuid() == marker.st_uid
    if not own or not stat.S_ISDIR(status.st_mode) or not stat.S_ISREG(marker.st_mode):
        return None
    return max(0.0, time.time() - marker.st_mtime)


def _is_in_use(folder: Path) -> bool:
    try:
        with _locked(folder / _MARKER):
            return False
    except OSError:
        return True


@contextlib.contextmanager
def _locked(marker: Path) -> Iterator[None]:
    """Alone with a folder; OSError where somebody uses it."""
    lock = os.open(marker, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(lock)
