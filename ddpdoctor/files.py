"""Files through which processes speak to each other: complete or absent, and read while they grow.

Standard library only.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_LARGEST = 64 << 20
"""Bytes of a file that is read for its checksum."""


def write_whole(path: Path, text: str) -> None:
    """Write a file that is complete or absent."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


@contextlib.contextmanager
def in_place_of(path: Path) -> Iterator[Path]:
    """A draft beside a file of the user's, which takes its place and its mode when all of it is written. It is the file
    itself where that is a pipe or a device, or stands in a folder that takes no other file."""
    real = path.resolve()  # what a link leads to
    if (real.exists() and not real.is_file()) or not os.access(real.parent, os.W_OK):
        yield path
        return
    draft = real.with_name(f"{real.name}.part")
    try:
        yield draft
        with contextlib.suppress(OSError):  # it is new
            shutil.copymode(real, draft)
        _take_place(draft, real)
    finally:
        draft.unlink(missing_ok=True)


def _take_place(draft: Path, real: Path) -> None:
    try:
        draft.replace(real)
    except OSError:  # a file that a container mounts is only written into
        shutil.copyfile(draft, real)


def write_json(path: Path, value: Any) -> None:
    """The same of a value."""
    write_whole(path, json.dumps(value))


def read_json(path: Path) -> Any:
    """A file's value; None where it is absent or unreadable, or was cut short by its writer's end."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def first_written(paths: Iterable[str | Path]) -> float:
    """When the first of these files, and of the files of these folders, was last written; now where there are none."""
    given = [Path(path) for path in paths]
    places = (place for path in given for place in ([path] if path.is_file() else path.glob("*")))
    return min(map(written_at, places), default=time.time())


def written_at(path: Path) -> float:
    """When a file was last written, in seconds since the epoch; 0 where it is absent."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def checksum(path: Path) -> str:
    """Of a file's content; empty where there is no such file, and of a large one."""
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return ""
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except (OSError, ValueError):  # a name that no file can have
        return ""


class GrowingFile:
    """A file of lines that somebody appends to; it need not be there yet."""

    def __init__(self, path: Path) -> None:
        self._path, self._offset = path, 0

    def new_lines(self) -> list[bytes]:
        """The lines that were completed since the last look; all of a file that was cut since then."""
        try:
            with self._path.open("rb") as file:
                if self._path.stat().st_size < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                complete, newline, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        self._offset += len(complete) + len(newline)
        return complete.split(b"\n") if newline else []
