"""Writes patches into the user's files: each is replaced as a whole, or not at all."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from ddpdoctor.redact import quote


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
    command = ["git", "status", "--porcelain", "--", path.name]
    english = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=path.parent, capture_output=True, text=True, check=False, env=english
        )
    except OSError:
        return ""
    if done.returncode:
        reason = done.stderr.strip().partition("\n")[0]
        return (
            "" if "not a git repository" in reason else f"is in a repository that git cannot read ({reason})"
        )
    if done.stdout.startswith("??"):
        return "is not tracked by git; commit it"
    return "has uncommitted changes; commit them" if done.stdout.strip() else ""
