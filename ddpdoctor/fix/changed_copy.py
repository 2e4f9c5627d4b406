"""The user's files with patches: in a copy of the folders, with links to everything else, or written in place, each
replaced as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from ddpdoctor.files import written_at
from ddpdoctor.redact import quote

_LEVELS = 2
"""Folders above the working directory whose entries are linked, too: scripts read ``../data``."""
_MOST_ENTRIES = 20_000
"""Of all folders that are looked through; a folder beyond them is linked as a whole."""
_LARGEST = 1 << 20
"""Bytes of a script."""
_CODE = {".git", ".hg", "__pycache__", "node_modules", ".venv"}


@dataclass
class ChangedCopy:
    """The copy; a context manager that removes it.

    Folders are real, so that what a run writes stays in the copy, and so are scripts; other files are links. A file
    that the run wrote which is to be repeated is left out, so that the copy begins as that run did.

    Args:
        folder: the working directory of the run.
        since: when that run began, in seconds since the epoch.
        changed: the files that have another content in the copy, by their absolute path.
    """

    folder: Path
    since: float
    changed: Mapping[Path, bytes]

    def __enter__(self) -> ChangedCopy:
        self.root = Path(tempfile.mkdtemp(prefix="ddpdoctor-fix-"))
        self._entries = 0
        try:
            for place in self._places():
                self._mirror(place)
            for path, raw in self.changed.items():
                self._put(path, raw)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def at(self, path: Path) -> Path:
        """Where a path of the user's is in the copy."""
        return self.root / path.relative_to("/")

    @property
    def working(self) -> Path:
        """The working directory in the copy."""
        return self.at(self.folder)

    def real(self, text: str) -> str:
        """A text that names files of the copy, with the user's own in their place."""
        return text.replace(str(self.root), "")

    def _places(self) -> Iterable[Path]:
        """The folders to copy, those within others left out."""
        places = sorted({self.folder, *(path.parent for path in self.changed)})
        return [it for it in places if not any(it != other and it.is_relative_to(other) for other in places)]

    def _mirror(self, place: Path) -> None:
        self._copy(place)
        for _ in range(_LEVELS):
            parent = place.parent
            if parent in (place, Path("/"), Path(tempfile.gettempdir())):
                break
            self._link_entries(parent)
            place = parent

    def _link_entries(self, folder: Path) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                there = self.at(Path(entry.path))
                if not there.exists() and not there.is_symlink():
                    there.symlink_to(entry.path)

    def _copy(self, folder: Path) -> None:
        copy = self.at(folder)
        copy.mkdir(parents=True, exist_ok=True)
        with os.scandir(folder) as entries:
            for entry in entries:
                self._entries += 1
                self._copy_entry(entry, copy / entry.name)

    def _copy_entry(self, entry: os.DirEntry[str], there: Path) -> None:
        is_folder = entry.is_dir(follow_symlinks=False)
        if is_folder and entry.name not in _CODE and self._entries < _MOST_ENTRIES:
            self._copy(Path(entry.path))
            if entry.stat(follow_symlinks=False).st_mtime >= self.since and not any(there.iterdir()):
                there.rmdir()
        elif entry.name == "__pycache__" or there.is_symlink():
            return
        elif is_folder or written_at(Path(entry.path)) < self.since:
            self._take(entry, there)

    def _take(self, entry: os.DirEntry[str], there: Path) -> None:
        # Python looks for modules beside the file that a link to a script leads to, and not beside the link.
        if entry.name.endswith((".py", ".pyw")) and entry.is_file() and entry.stat().st_size <= _LARGEST:
            shutil.copy2(entry.path, there)
        else:
            there.symlink_to(entry.path)

    def _put(self, path: Path, raw: bytes) -> None:
        there = self.at(path)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.unlink(missing_ok=True)
        there.write_bytes(raw)


class Refused(Exception):
    """The files are left as they are; the message says why, in a clause."""


def write_all(texts: Mapping[Path, bytes], before: Mapping[Path, bytes], *, force: bool = False) -> None:
    """Write the files. An interruption at any point leaves each file either as it was or as it is to be.

    Args:
        before: what stood in the files when the patches were made.
        force: whether changes that are not committed do not matter.

    Raises:
        Refused: a file is another one now, has changes that are not committed, or cannot be written. None is written,
            unless the disk fails between two of them.
    """
    for path in texts:
        if _content(path) != before[path]:
            raise Refused(f"{quote(str(path))} changed meanwhile")
        if not force and (why := why_not_restorable(path)):
            raise Refused(f"{quote(str(path))} {why}, or use --force")
    with contextlib.ExitStack() as drafts:
        written = [(drafts.enter_context(_draft(path, raw)), path) for path, raw in texts.items()]
        for draft, path in written:
            draft.replace(os.path.realpath(path))  # not the link


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


@contextlib.contextmanager
def _draft(path: Path, raw: bytes) -> Iterator[Path]:
    """A file with the new content beside the one that it is to replace; removed where it does not."""
    target = Path(os.path.realpath(path))
    try:
        if not os.access(target, os.W_OK):
            raise Refused(f"{quote(str(path))} is read-only")
        number, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as failed:
        raise Refused(f"{quote(str(path))} cannot be written: {failed.strerror}") from None
    draft = Path(name)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        draft.chmod(target.stat().st_mode & 0o7777)
        yield draft
    except OSError as failed:
        raise Refused(f"{quote(str(path))} cannot be written: {failed.strerror}") from None
    finally:
        draft.unlink(missing_ok=True)


def why_not_restorable(path: Path) -> str:
    """Why git could not give the file back as it is, with what to do, in a clause.

    Empty where it could, where git ignores the file, and where the file is in no repository: there nobody counts on it.
    """
    command = ["git", "-C", str(path.parent), "status", "--porcelain", "--", path.name]
    english = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=english)
    except OSError:
        return ""
    if done.returncode:
        reason = done.stderr.strip().partition("\n")[0]
        unread = f"is in a repository that git cannot read ({reason})"
        return "" if "not a git repository" in reason else unread
    if done.stdout.startswith("??"):
        return "is not tracked by git; commit it"
    return "has uncommitted changes; commit them" if done.stdout.strip() else ""
