"""Checkpoints on disk: whole or not there, whatever happens to the process, the disk or the file."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sample_trainer.bundled import FOLDER, module

files = module("checkpoint_files")


def write(folder: Path, step: int, content: bytes = b"weights", keep: int = 2) -> None:
    """As rank 0 does."""
    kinds = {"model": "replicated"}
    whole = files.write(folder, step, 1, kinds, {"model.pt": content})
    files.point(folder, "latest", whole)
    files.remove_old(folder, keep)


def steps(folder: Path) -> list[int]:
    return [files.step_of(one) for one in files.complete(folder)]


def read(checkpoint: Path) -> bytes:
    return bytes(files.read_file(checkpoint, "model.pt", files.read_manifest(checkpoint)))


def test_the_newest_are_kept_and_latest_names_the_last(tmp_path):
    for step in (1, 2, 3, 10):
        write(tmp_path, step)
    assert steps(tmp_path) == [3, 10]
    assert files.read_pointer(tmp_path, "latest") == "step-00000010"
    assert sorted(one.name for one in tmp_path.iterdir()) == ["latest", "step-00000003", "step-00000010"]


def test_the_best_is_kept_besides(tmp_path):
    write(tmp_path, 1)
    files.point(tmp_path, "best", tmp_path / "step-00000001")
    for step in (2, 3, 4):
        write(tmp_path, step)
    assert steps(tmp_path) == [1, 3, 4]


def test_the_same_state_again_changes_nothing(tmp_path):
    write(tmp_path, 1)
    write(tmp_path, 1)
    assert read(tmp_path / "step-00000001") == b"weights"
    assert not list(tmp_path.glob("*.part"))


def test_other_weights_of_the_same_step_are_refused(tmp_path):
    write(tmp_path, 1)
    with pytest.raises(files.TrainerError, match="already exists and holds other weights"):
        write(tmp_path, 1, b"others")
    assert read(tmp_path / "step-00000001") == b"weights"
    assert not list(tmp_path.glob("*.part"))


def break_content(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"!")


def shorten(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def link_away(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (break_content, "is corrupt: the content of model.pt has changed since it was written"),
        (shorten, "is corrupt: model.pt does not have its 7 bytes"),
        (Path.unlink, "is corrupt: model.pt does not have its 7 bytes"),
        (link_away, "is corrupt: model.pt does not have its 7 bytes"),
    ],
)
def test_a_damaged_file_is_named(tmp_path, damage, said):
    write(tmp_path, 1)
    damage(tmp_path / "step-00000001" / "model.pt")
    with pytest.raises(files.TrainerError) as raised:
        read(tmp_path / "step-00000001")
    assert str(raised.value) == f"{tmp_path / 'step-00000001'} {said}"


def test_a_manifest_that_never_ends_is_not_read(tmp_path):
    write(tmp_path, 1)
    with (tmp_path / "step-00000001" / "manifest.json").open("r+b") as file:
        file.truncate(1 << 32)
    with pytest.raises(files.TrainerError, match="is not the manifest of a checkpoint"):
        files.read_manifest(tmp_path / "step-00000001")


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

folder = Path(sys.argv[1])

def save(step):
    contents = {{"model.pt": b"%d" % step}}
    whole = files.write(folder, step, 1, {{"model": "replicated"}}, contents)
    files.point(folder, "latest", whole)
    files.remove_old(folder, 1)

save(1)
for call in range(1, 100):
    if (child := os.fork()) == 0:
        left = call
        save(call + 1)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    whole = files.complete(folder)
    said = [(one.name, files.read_file(one, "model.pt", files.read_manifest(one)).decode()) for one in whole]
    print(status, files.read_pointer(folder, "latest"), said)
    if status == 0:
        break
"""


def test_a_save_that_dies_anywhere_loses_nothing(tmp_path):
    """At every call to the system: what has a checkpoint's name is whole, and ``latest`` names one of them."""
    done = subprocess.run(
        [sys.executable, "-c", SAVE_AND_DIE, str(tmp_path)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("0 ")
    assert len(lines) > 15  # each of them another place to die at
    newest = 1
    for line in lines:
        _, latest, told = line.split(" ", 2)
        whole: list[tuple[str, str]] = ast.literal_eval(told)
        assert all(int(name[5:]) == int(content) for name, content in whole)
        assert latest in dict(whole)
        assert files.step_of(Path(whole[-1][0])) >= newest  # none that was complete is gone
        newest = files.step_of(Path(whole[-1][0]))
    files.remove_unfinished(tmp_path)
    assert len(list(tmp_path.iterdir())) == 2  # one checkpoint and latest


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
        write(small_disk, 2, bytes(400_000))
    assert steps(small_disk) == [1]
    assert read(small_disk / "step-00000001") == b"weights"
    assert not list(small_disk.glob("*.part"))  # its space is free again
    write(small_disk, 3)


@pytest.mark.root
def test_a_read_only_disk_leaves_the_checkpoint_before(small_disk):
    write(small_disk, 1)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(OSError, match="Read-only file system"):
        write(small_disk, 2)
    assert read(small_disk / "step-00000001") == b"weights"


def test_every_file_is_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    """The order that a power failure tests: contents, their folder's names, the rename, its folder."""
    events: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def note_fsync(number: int) -> None:
        events.append(f"sync {Path(f'/proc/self/fd/{number}').readlink().name}")
        fsync(number)

    def note_rename(old: Path, new: Path) -> Path:
        events.append(f"rename {new.name}")
        return rename(old, new)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(Path, "rename", note_rename)
    files.write(tmp_path, 1, 1, {"model": "replicated"}, {"model.pt": b"1"})
    assert events == [
        "sync model.pt",
        "sync manifest.json",
        "sync step-00000001.part",
        "rename step-00000001",
        f"sync {tmp_path.name}",
    ]
