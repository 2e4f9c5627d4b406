"""What the trainer says of checkpoints that it cannot write or use: one line on rank 0, and every rank ends."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sample_trainer.bundled import FOLDER, module
from tests.support.forked import Ran, run_forked

pytestmark = pytest.mark.slow

files = module("checkpoint_files")

SMALL = ("train.steps=3", "train.epochs=1", "data.batch_size=2", "data.context=16", "checkpoint.every=1")


def train(place: Path, name: str, *keys: str, nproc: int = 2) -> Ran:
    """A short training in the run folder ``place / name``; later keys win."""
    words = (*SMALL, f"run.folder={place / name}", *keys)
    ran = place / f"ran{len(list(place.glob('ran*')))}"
    return run_forked(FOLDER / "trainer.py", ran, *words, nproc=nproc, record=False)


def said(ran: Ran) -> list[str]:
    """By rank, without what torch itself warns of."""
    return [
        "\n".join(line for line in one.splitlines() if line.startswith("trainer: ")) for one in ran.errors
    ]


def refused(ran: Ran, line: str) -> bool:
    """Whether every rank ended with status 2, and rank 0 alone said why, without a traceback."""
    assert [one[: len(line)] for one in said(ran)] == [line, *[""] * (len(ran.statuses) - 1)]
    return set(ran.statuses) == {2} and not any("Traceback" in one for one in ran.errors)


def steps(checkpoints: Path) -> list[int]:
    """Of the checkpoints that are whole, each file looked at."""
    for one in files.complete(checkpoints):
        files.read(one)
    return [files.step_of(one) for one in files.complete(checkpoints)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a training that went well, in ``good``."""
    place = tmp_path_factory.mktemp("errors")
    ran = train(place, "good")
    assert set(ran.statuses) == {0}, ran.errors
    assert steps(place / "good" / "checkpoints") == [2, 3]
    return place


def test_a_checkpoint_of_another_model(place):
    line = f"trainer: {place}/good/checkpoints/step-00000003.pt does not fit this run: model: another model: byte"
    assert refused(train(place, "good", "checkpoint.resume=true", "model.width=64"), line)


def test_a_checkpoint_of_another_optimizer(place):
    line = f"trainer: {place}/good/checkpoints/step-00000003.pt does not fit this run: optimizer: another optimizer: "
    assert refused(train(place, "good", "checkpoint.resume=true", "optimizer.name=sgd"), line)


def test_half_a_line_of_metrics_is_forgotten(place):
    shutil.copytree(place / "good", place / "half")
    with (place / "half" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "step", "st')
    ran = train(place, "half", "checkpoint.resume=true", "train.epochs=2")
    assert set(ran.statuses) == {0}, ran.errors
    lines = (place / "half" / "metrics.jsonl").read_text().splitlines()
    assert all(json.loads(line)["step"] <= 6 for line in lines)


def test_a_corrupt_checkpoint(place):
    shutil.copytree(place / "good", place / "corrupt")
    broken = place / "corrupt" / "checkpoints" / "step-00000003.pt"
    os.truncate(broken, 100)
    ran = train(place, "corrupt", "checkpoint.resume=true")
    assert refused(ran, f"trainer: {broken} is corrupt: it has changed since it was written")


def test_a_folder_of_another_run(place):
    ran = train(place, "good")
    assert refused(
        ran, f"trainer: {place}/good/checkpoints holds step-00000003.pt, and this run starts at step 0"
    )


def test_another_number_of_ranks_goes_on_and_says_what_it_lacks(place):
    shutil.copytree(place / "good", place / "more")
    ran = train(place, "more", "checkpoint.resume=true", "train.epochs=2", nproc=3)
    assert set(ran.statuses) == {0}, ran.errors
    assert "step-00000003.pt was written by 2 ranks and this run has 3" in ran.errors[0]
    assert steps(place / "more" / "checkpoints") == [5, 6]


@pytest.fixture
def disk(place: Path) -> Iterator[Path]:
    """The checkpoints of ``small`` lie on a disk that takes one and a half."""
    checkpoints = place / "small" / "checkpoints"
    checkpoints.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(checkpoints)], check=True)
    try:
        yield checkpoints
    finally:
        subprocess.run(["umount", str(checkpoints)], check=True)
        shutil.rmtree(place / "small")


@pytest.mark.root
def test_a_disk_that_is_full_or_read_only_while_saving(place, disk):
    line = f"trainer: the checkpoint of step 2 cannot be written to {disk}: "
    assert refused(train(place, "small"), line + "No space left on device")
    assert steps(disk) == [1]
    assert not list(disk.glob("*.part"))

    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    assert refused(train(place, "small", "checkpoint.resume=true"), line + "Read-only file system")
    assert steps(disk) == [1]

    subprocess.run(["mount", "-o", "remount,rw,size=50m", str(disk)], check=True)
    ran = train(place, "small", "checkpoint.resume=true")  # with room it goes on from there
    assert set(ran.statuses) == {0}, ran.errors
    assert steps(disk) == [2, 3]
