"""Checkpoints on disk: whole or not there, whatever happens to the process, the disk or the file."""

import ast
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sample_trainer.bundled import FOLDER, module

files = module("checkpoint_files")


FIRST = "step-00000001.pt"


def write(folder: Path, step: int, weights: int = 1, best: bool = False) -> None:
    """As rank 0 does; an archive without tensors will do."""

    def save(file: Any) -> None:
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("model", f"{step:{weights}}")

    files.write(folder, step, save, best=best, keep=2)


def steps(folder: Path) -> list[int]:
    return [files.step_of(one) for one in files.complete(folder)]


def read(checkpoint: Path) -> int:
    """The step whose weights it holds."""
    return int(zipfile.ZipFile(io.BytesIO(files.read(checkpoint))).read("model"))


def test_the_newest_are_kept(tmp_path):
    for step in (1, 2, 3, 10):
        write(tmp_path, step)
    assert steps(tmp_path) == [3, 10]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["step-00000003.pt", "step-00000010.pt"]


def test_the_best_is_kept_besides(tmp_path):
    for step in (1, 2, 3, 4):
        write(tmp_path, step, best=step == 1)
    assert steps(tmp_path) == [3, 4]
    assert read(tmp_path / "best.pt") == 1


def change(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"   1", b"   2"))


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def replace(file: Path) -> None:
    file.write_bytes(b"weights")


@pytest.mark.parametrize("damage", [change, shorten, replace])
def test_a_damaged_file_is_named(tmp_path, damage):
    write(tmp_path, 1, weights=100)
    damage(tmp_path / FIRST)
    with pytest.raises(files.TrainerError) as raised:
        read(tmp_path / FIRST)
    assert str(raised.value) == f"{tmp_path / FIRST} is corrupt: it has changed since it was written"


# --- A process that dies at each of its calls to the system ------------------------------------------------------

CALLS = ("mkdir", "open", "fsync", "rename", "replace", "unlink", "rmdir")

SAVE_AND_DIE = f"""
import os, sys
sys.path.insert(0, {str(FOLDER)!r})
left = 0

def dies(call):
    def counted(*args, **kwargs):
        global left
        left -= 1
        if left == 0:
            os._exit(9)
        return call(*args, **kwargs)
    return counted

for name in {CALLS!r}:
    setattr(os, name, dies(getattr(os, name)))

from pathlib import Path  # in Python 3.10 it keeps the functions that it finds
import checkpoint_files as files
import io, zipfile

folder = Path(sys.argv[1])

def save(step):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("model", str(step))
    files.write(folder, step, content.getvalue(), best=True, keep=1)

def read(checkpoint):
    return int(zipfile.ZipFile(io.BytesIO(files.read(checkpoint))).read("model"))

save(1)
for call in range(1, 100):
    if (child := os.fork()) == 0:
        left = call
        save(call + 1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    whole = files.complete(folder)
    said = [(one.name, read(one)) for one in (*whole, folder / "best.pt")]
    print(status, said)
    if status == 0:
        break
"""


def test_a_save_that_dies_anywhere_loses_nothing(tmp_path):
    """At every call to the system: what has a checkpoint's name is whole."""
    done = subprocess.run(
        [sys.executable, "-c", SAVE_AND_DIE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("0 ")
    assert len(lines) > 6  # each of them another place to die at; Python 3.10 tells of fewer
    newest = 1
    for line in lines:
        *whole, _ = ast.literal_eval(line.partition(" ")[2])
        assert all(files.step_of(Path(name)) == content for name, content in whole)
        assert whole[-1][1] >= newest  # none that was complete is gone
        newest = whole[-1][1]
    assert len(list(tmp_path.glob("*.pt"))) == 2  # one checkpoint and the best


# --- A disk that takes no more -----------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.root
def test_a_full_disk_leaves_the_checkpoint_before(small_disk):
    write(small_disk, 1)
    with pytest.raises(OSError, match="No space left on device"):
        write(small_disk, 2, weights=400_000)
    assert steps(small_disk) == [1]
    assert read(small_disk / FIRST) == 1
    assert not list(small_disk.glob("*.part"))  # its space is free again
    write(small_disk, 3)


@pytest.mark.root
def test_a_read_only_disk_leaves_the_checkpoint_before(small_disk):
    write(small_disk, 1)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError, match="Read-only file system"):
        write(small_disk, 2)
    assert read(small_disk / FIRST) == 1


def test_every_file_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    """The order that a power failure tests: the content, the rename, its folder."""
    events: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def note_fsync(number: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{number}').readlink().name}")
        fsync(number)

    def note_replace(old: Path, new: Path) -> Path:
        events.append(f"rename {new.name}")
        return replace(old, new)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "replace", note_replace)
    write(tmp_path, 1)
    assert events == [f"sync {FIRST}.part", f"rename {FIRST}", f"sync {tmp_path.name}"]
