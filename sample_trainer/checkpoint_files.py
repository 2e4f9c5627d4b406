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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from config import TrainerError

FORMAT = 1
MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 1 << 20  # a thousand times what there is; a larger one is not ours

Content = bytes | Callable[[Any], object]
"""Of a file, or what writes it to an open one."""
_FOLDER = re.compile(r"step-[0-9]{8,18}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")  # no way out of the folder
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class File:
    """What the manifest says of one file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds."""

    step: int
    world_size: int
    components: Mapping[str, str]
    """What each is to the ranks, by name."""
    files: Mapping[str, File]
    format: int = FORMAT


# --- Writing ------------------------------------------------------------------------------------------------


def write(
    folder: Path, step: int, world_size: int, components: Mapping[str, str], contents: Mapping[str, Content]
) -> Path:
    """Write one checkpoint.

    Raises:
        TrainerError: another run's checkpoint of this step is there. It stays as it is.
        OSError: the disk is full, the folder cannot be written. What was there stays as it was.
    """
    whole = folder / f"step-{step:08d}"
    part = _part_of(whole)
    shutil.rmtree(part, ignore_errors=True)  # of a save that was killed
    part.mkdir(parents=True)
    try:
        files = {name: _write_synced(part / name, content) for name, content in contents.items()}
        manifest = json.dumps(asdict(Manifest(step, world_size, components, files)), indent=1) + "\n"
        _write_synced(part / MANIFEST, manifest.encode())
        sync_folder(part)
        if whole.exists():
            _require_same(whole, files)
        else:
            part.rename(whole)
            sync_folder(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return whole


def point(folder: Path, pointer: str, checkpoint: Path) -> None:
    """Let ``latest`` or ``best`` name a checkpoint, from one moment to the next."""
    write_whole(folder / pointer, f"{checkpoint.name}\n".encode())
    sync_folder(folder)


def remove_old(folder: Path, keep: int) -> None:
    """Remove all but the newest ``keep`` checkpoints and those that ``latest`` and ``best`` name."""
    named = {read_pointer(folder, pointer) for pointer in ("latest", "best")}
    for old in complete(folder)[:-keep]:
        if old.name not in named:
            # Renamed first: what is half removed must not look whole.
            old.rename(_part_of(old))
            shutil.rmtree(_part_of(old))


def remove_unfinished(folder: Path) -> None:
    """Remove what saves left that were killed."""
    for part in folder.glob("*.part"):
        if part.is_dir():
            shutil.rmtree(part)
        else:
            part.unlink()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that whoever looks, and whenever, finds all of it or what was there before."""
    part = _part_of(path)
    _write_synced(part, content)
    part.replace(path)


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk; a rename is safe from a power failure only then."""
    if os.name == "nt":  # cannot open a folder, and needs no such thing
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _part_of(path: Path) -> Path:
    return path.with_name(path.name + ".part")


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


def _write_synced(path: Path, content: Content) -> File:
    with path.open("wb") as file:
        sink = _Sink(file)
        if callable(content):
            content(sink)
        else:
            sink.write(content)
        if sink.error is not None:
            raise sink.error
        file.flush()
        os.fsync(file.fileno())
    return File(sink.size, sink.digest.hexdigest())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _require_same(whole: Path, files: Mapping[str, File]) -> None:
    """A state is saved twice where a run chooses the best, or is resumed and ends at once; the first will do.

    What tells training states from each other are the weights.
    """
    if read_manifest(whole).files.get("model.pt") != files["model.pt"]:
        raise TrainerError(f"{whole} already exists and holds other weights; choose another folder")


# --- Reading ------------------------------------------------------------------------------------------------


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
        if path.is_symlink() or not path.is_file() or path.stat().st_size != expected.bytes:
            raise TrainerError(f"{checkpoint} is corrupt: {name} does not have its {expected.bytes} bytes")
        content = path.read_bytes()
    if _digest(content) != expected.sha256:
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
        return parse_manifest(text)
    except ValueError:
        raise TrainerError(f"{path} is not the manifest of a checkpoint") from None


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TrainerError(f"{path} cannot be read: {error.strerror or error}") from None


def parse_manifest(text: bytes) -> Manifest:
    """The manifest in a text.

    Raises:
        ValueError: it is none.
    """
    try:
        values = json.loads(text)
        files = {name: File(**file) for name, file in values.pop("files").items()}
        manifest = Manifest(files=files, **values)
        sound = _is_sound(manifest)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        sound = False
    if not sound or len(text) > MOST_MANIFEST_BYTES:
        raise ValueError("not a manifest")
    return manifest


def _is_sound(manifest: Manifest) -> bool:
    """Whether every value is what it has to be: of its type, in bounds, and inside the folder."""
    counts = [manifest.step, manifest.world_size - 1, *(file.bytes for file in manifest.files.values())]
    return (
        manifest.format == FORMAT
        and all(type(count) is int and 0 <= count < 1 << 62 for count in counts)
        and all(_FILE.fullmatch(name) and _DIGEST.fullmatch(f.sha256) for name, f in manifest.files.items())
        and all(type(kind) is str for kind in manifest.components.values())
        and all(f"{name}.pt" in manifest.files for name in manifest.components)
    )
