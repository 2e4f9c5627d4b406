"""The trainer as a user runs it. Runs take seconds, so tests share two: alone, and three ranks under torchrun."""

import hashlib
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

TRAINER = Path(__file__).parents[2] / "sample_trainer" / "trainer.py"
RANKS = 3
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(RANKS))
LAUNCHER_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}


def train(out: Path, *launcher: str) -> "subprocess.CompletedProcess[str]":
    environ = {name: value for name, value in os.environ.items() if name not in LAUNCHER_VARIABLES}
    return subprocess.run(
        [*launcher, str(TRAINER), "--backend", "gloo", "--out", str(out)],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("alone") / "new"
    done = train(out, sys.executable)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("together")
    done = train(out, *TORCHRUN)
    assert done.returncode == 0, done.stderr
    # Rank 0 alone logs: two epochs and the evaluation, once each.
    assert sum("loss" in line for line in done.stderr.splitlines()) == 3
    return out


@pytest.fixture(scope="module")
def trainer() -> ModuleType:
    """The trainer's own code, with nothing run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TRAINER.parent)
        return importlib.import_module("trainer")


def summaries(out: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(out.glob("rank*.json"))]


def test_it_learns_without_a_launcher(alone):
    (said,) = summaries(alone)
    assert (said["world_size"], said["steps"], said["samples"]) == (1, 16, 128)
    assert said["first_loss"] > 5
    assert said["last_loss"] < 4
    assert said["evaluation_loss"] < 4


def test_it_learns_together(together):
    said = summaries(together)
    assert [one["rank"] for one in said] == [0, 1, 2]
    assert {one["samples"] for one in said} == {128}
    assert said[0]["last_loss"] < 4


def test_all_ranks_end_with_the_same_weights_and_losses(together):
    said = summaries(together)
    assert len({one["weights"] for one in said}) == 1
    assert [one["difference"] for one in said] == [None] * RANKS
    for name in ("first_loss", "last_loss", "evaluation_loss"):
        assert len({one[name] for one in said}) == 1


def test_the_same_run_gives_the_same_bits(alone, tmp_path):
    assert train(tmp_path, sys.executable).returncode == 0
    assert summaries(tmp_path)[0]["weights"] == summaries(alone)[0]["weights"]


def test_nothing_incomplete_is_left(together):
    assert sorted(file.name for file in together.iterdir()) == [
        "checkpoint.pt",
        *(f"rank{rank}.json" for rank in range(RANKS)),
    ]


def test_the_checkpoint_loads_into_the_bare_model(together, trainer):
    saved = torch.load(together / "checkpoint.pt", weights_only=True)
    model = trainer.ByteTransformer()
    model.load_state_dict(saved["model"])
    assert trainer.checksum(model.state_dict()) == summaries(together)[0]["weights"]


def test_the_evaluation_counts_each_sample_once(together, trainer):
    """Its loss is that of one process over all samples, though they do not divide evenly between the ranks."""
    _, held_out = trainer.read_text()
    assert len(held_out) % RANKS != 0
    model = trainer.ByteTransformer()
    model.load_state_dict(torch.load(together / "checkpoint.pt", weights_only=True)["model"])
    inputs, targets = map(torch.stack, zip(*(held_out[i] for i in range(len(held_out))), strict=True))
    with torch.no_grad():
        exact = torch.nn.functional.cross_entropy(model(inputs).flatten(0, 1).double(), targets.flatten())
    assert summaries(together)[0]["evaluation_loss"] == pytest.approx(float(exact), rel=1e-6)


def test_a_checksum_sees_every_bit_every_name_and_the_order(trainer):
    one, two = torch.tensor([1.0, 2.0]), torch.tensor([2.0, 1.0])
    weights = [
        {"a": one},
        {"a": two},
        {"b": one},
        {"a": one.double()},
        {"a": one, "b": two},
        {"a": -0.0 * one},
    ]
    weights.append({"a": 0.0 * one})
    assert len({trainer.checksum(each) for each in weights}) == len(weights)
    assert trainer.checksum({"a": one}) == trainer.checksum({"a": one.clone()})
    assert trainer.checksum({"a": torch.stack([one, two], dim=1)[:, 0]}) == trainer.checksum({"a": one})
    assert trainer.checksum({}) == hashlib.sha256().hexdigest()


def test_a_failed_write_keeps_what_was_there(trainer, tmp_path):
    file = tmp_path / "checkpoint.pt"
    trainer.write_atomically(file, lambda opened: opened.write(b"old"))

    def fail(opened: Any) -> None:
        opened.write(b"new")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        trainer.write_atomically(file, fail)
    assert file.read_bytes() == b"old"
