"""Checkpoints on disk: folders that are whole or not there. Nothing here knows of ranks or tensors.

    checkpoints/
        step-00000100/  model.pt  optimizer.pt  ...  manifest.json
        step-00000200/  ...
        latest          the name of the newest, for other programs; a text file
        best            the same of the best, where one was chosen

A checkpoint is written under another name, ``.part`` at its end, and gets its own by a rename when every byte is
on the disk: whoever finds ``step-00000200`` finds all of it. Its manifest has the size and the SHA-256 of each file;
it may come from anywhere, so that nothing in it is believed before it was looked at.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from config import TrainerError

FORMAT = 1
MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 1 << 20  # a thousand times what there is; a larger one is not ours

_FOLDER = re.compile(r"step-[0-9]{8,18}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_DIGEST = re.compile(r"[0-9a-f]{64}")

Write = Callable[[BinaryIO], object]


@dataclass(frozen=True)
class File:
    """What the manifest says of one file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds."""

    step: int
    world_size: int
    kinds: Mapping[str, str]
    """Of each component, by name."""
    files: Mapping[str, File]


# --- Writing ------------------------------------------------------------------------------------------------


def write(
    folder: Path, step: int, world_size: int, kinds: Mapping[str, str], files: Mapping[str, Write]
) -> Path:
    """Write one checkpoint.

    Raises:
        TrainerError: another run's checkpoint of this step is there. It stays as it is.
        OSError: the disk is full, the folder cannot be written. What was there stays as it was.
    """
    whole = folder / folder_name(step)
    part = whole.with_name(whole.name + ".part")
    shutil.rmtree(part, ignore_errors=True)  # of a save that was killed
    part.mkdir(parents=True)
    try:
        written = {name: _write_file(part / name, fill) for name, fill in files.items()}
        text = manifest_text(Manifest(step, world_size, kinds, written))
        _write_file(part / MANIFEST, lambda file: file.write(text))
        sync_folder(part)
        if whole.exists():
            _require_same(whole, written)
        else:
            part.rename(whole)
            sync_folder(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return whole


def point(folder: Path, pointer: str, checkpoint: Path) -> None:
    """Let ``latest`` or ``best`` name a checkpoint, from one moment to the next."""
    part = folder / f"{pointer}.part"
    _write_file(part, lambda file: file.write(f"{checkpoint.name}\n".encode()))
    part.replace(folder / pointer)
    sync_folder(folder)


def remove_old(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints and those that ``latest`` and ``best`` name."""
    named = {read_pointer(folder, pointer) for pointer in ("latest", "best")}
    for old in complete(folder)[:-keep]:
        if old.name not in named:
            # Renamed first: what is half removed must not look whole.
            part = old.with_name(old.name + ".part")
            old.rename(part)
            shutil.rmtree(part)


def remove_unfinished(folder: Path) -> None:
    """Remove what saves left that were killed."""
    for part in folder.glob("*.part"):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk; a rename is safe from a power failure only then."""
    if os.name == "nt":  # cannot open a folder, and needs no such thing
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


class _Sink:
    """A file that counts and digests what is written to it, and keeps an error for later: torch.save goes on after
    one, and would raise another that says nothing of the disk."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.name = file.name
        self.digest = hashlib.sha256()
        self.size = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Write, if nothing has gone wrong so far."""
        if self.error is None:
            try:
                self.file.write(data)
            except OSError as error:
                self.error = error
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing: the file is flushed once, when it is complete."""


def _write_file(path: Path, fill: Write) -> File:
    with path.open("wb") as file:
        sink = _Sink(file)
        fill(sink)  # type: ignore[arg-type]  # all of a file that writers use
        if sink.error is not None:
            raise sink.error
        file.flush()
        os.fsync(file.fileno())
    return File(sink.size, sink.digest.hexdigest())


def _require_same(whole: Path, files: Mapping[str, File]) -> None:
    """A state is saved twice where a run chooses the best, or is resumed and ends at once; the first will do.

    What tells training states from each other are the weights.
    """
    if read_manifest(whole).files.get("model.pt") != files["model.pt"]:
        raise TrainerError(f"{whole} already exists and holds other weights; choose another folder")


# --- Reading ------------------------------------------------------------------------------------------------


def folder_name(step: int) -> str:
    """The name of the checkpoint of a step."""
    return f"step-{step:08d}"


def complete(folder: Path) -> list[Path]:
    """The whole checkpoints of a folder, oldest first."""
    entries = folder.iterdir() if folder.is_dir() else ()
    return sorted((entry for entry in entries if _FOLDER.fullmatch(entry.name)), key=step_of)


def step_of(checkpoint: Path) -> int:
    """The step that a checkpoint's name tells."""
    return int(checkpoint.name[5:])


def read_pointer(folder: Path, pointer: str) -> str | None:
    """The name of the checkpoint that ``latest`` or ``best`` names."""
    try:
        return (folder / pointer).read_text(errors="replace").strip()
    except FileNotFoundError:
        return None


def read_file(checkpoint: Path, name: str, manifest: Manifest) -> bytes:
    """The content of one file.

    Raises:
        TrainerError: it is not what was written.
    """
    expected, path = manifest.files[name], checkpoint / name
    with _readable(path):
        if path.is_symlink() or not path.is_file() or path.stat().st_size != expected.size:
            raise TrainerError(f"{checkpoint} is corrupt: {name} does not have its {expected.size} bytes")
        content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != expected.sha256:
        raise TrainerError(f"{checkpoint} is corrupt: the content of {name} has changed since it was written")
    return content


def read_manifest(checkpoint: Path) -> Manifest:
    """What a checkpoint says that it holds. It may come from anywhere.

    Raises:
        TrainerError: there is none, or it is not one of ours.
    """
    path = checkpoint / MANIFEST
    with _readable(path), path.open("rb") as file:
        text = file.read(MOST_MANIFEST_BYTES + 1)
    try:
        if len(text) > MOST_MANIFEST_BYTES:
            raise ValueError("it is too long")
        return parse_manifest(text)
    except ValueError as error:
        raise TrainerError(f"{path} is not the manifest of a checkpoint: {error}") from None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrainerError(f"{path} cannot be read: {error.strerror or error}") from None


# --- The manifest -------------------------------------------------------------------------------------------


def parse_manifest(text: bytes) -> Manifest:
    """The manifest in a text.

    Raises:
        ValueError: it is none, and why.
    """
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):  # also of what is not UTF-8, or a number of 5000 digits
        raise ValueError("it is not JSON") from None
    values = _typed(values, dict, "the whole")
    if values.get("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    kinds = _typed(values.get("components"), dict, "components")
    files = {
        _file_name(name): _file(name, entry)
        for name, entry in _typed(values.get("files"), dict, "files").items()
    }
    for name, kind in kinds.items():
        _typed(kind, str, f"the kind of {name[:100]!r}")
        if f"{name}.pt" not in files:
            raise ValueError(f"it has no file for the component {name[:100]!r}")
    return Manifest(_count(values, "step", 0), _count(values, "world_size", 1), kinds, files)


def manifest_text(manifest: Manifest) -> bytes:
    """The text that parse_manifest reads."""
    values = {
        "format": FORMAT,
        "step": manifest.step,
        "world_size": manifest.world_size,
        "components": dict(manifest.kinds),
        "files": {name: {"bytes": file.size, "sha256": file.sha256} for name, file in manifest.files.items()},
    }
    return (json.dumps(values, indent=1) + "\n").encode()


def _file_name(name: str) -> str:
    if not _FILE.fullmatch(name):  # no way out of the folder
        raise ValueError(f"{name[:100]!r} is no name of a file in it")
    return name


def _file(name: str, entry: Any) -> File:
    digest = _typed(entry, dict, name).get("sha256")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"{name} has no SHA-256")
    return File(_count(entry, "bytes", 0), digest)


def _count(entry: Mapping[str, Any], name: str, least: int) -> int:
    value = entry.get(name)
    if type(value) is not int or not least <= value < 1 << 62:
        raise ValueError(f"{name} is not a count")
    return value


def _typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise ValueError(f"{name} is not {'an object' if kind is dict else 'a text'}")
    return value
