"""Checkpoints on disk: files that are whole or not there. Nothing here knows of ranks or tensors.

    checkpoints/
        step-00000100.pt   what torch.save wrote: a dictionary of the parts of the state, the weights under ``model``
        step-00000200.pt
        best.pt            the same of the best, where one was chosen

A file is written under another name, ``.part`` at its end, and gets its own by a rename when every byte is on the disk:
whoever finds ``step-00000200.pt`` finds all of it. torch.save writes a zip archive, with a checksum of each tensor;
a checkpoint may come from anywhere, so that nothing in it is believed before it was looked at.
"""

import io
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from config import TrainerError

Content = bytes | Callable[[Any], object]
"""Of a file, or what writes it to an open one."""
_NAME = re.compile(r"step-([0-9]{8,18})\.pt")


def write(folder: Path, step: int, content: Content, *, best: bool, keep: int) -> None:
    """Write one checkpoint, and then remove all but the newest ``keep``. Raises OSError where the disk is full or the
    folder cannot be written; what was there stays as it was."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (f"step-{step:08d}.pt", *(["best.pt"] if best else [])):
        write_whole(folder / name, content)
    for old in complete(folder)[:-keep]:
        old.unlink()


def write_whole(path: Path, content: Content) -> None:
    """Write a file so that whoever looks, and whenever, finds all of it or what was there before."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            sink = _Sink(file)
            content(sink) if callable(content) else sink.write(content)
            if sink.error is not None:
                raise sink.error
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    _sync_folder(path.parent)


class _Sink:
    """A file that keeps an error for later: torch.save goes on after one, and would raise another that says nothing of
    the disk."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self.name = file, file.name
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write, if nothing has gone wrong so far."""
        if self.error is None:
            try:
                self.file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Nothing: the file is flushed once, when it is complete."""


def _sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk; a rename is safe from a power failure only then."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def complete(folder: Path) -> list[Path]:
    """The checkpoints of a folder, oldest first."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted((entry for entry in entries if _NAME.fullmatch(entry.name)), key=step_of)


def step_of(checkpoint: Path) -> int:
    """The step that a checkpoint's name tells."""
    return int(checkpoint.stem[5:])


def read(checkpoint: Path) -> bytes:
    """The content of a checkpoint. Raises TrainerError where it is not what was written."""
    try:
        if not checkpoint.is_file():
            raise TrainerError(f"there is no checkpoint {checkpoint}")
        content = checkpoint.read_bytes()
    except OSError as error:
        raise TrainerError(f"{checkpoint} cannot be read: {error.strerror or error}") from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            whole = archive.testzip() is None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError):
        whole = False
    if not whole:
        raise TrainerError(f"{checkpoint} is corrupt: it has changed since it was written")
    return content
