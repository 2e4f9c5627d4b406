"""The trainer alone, as ``python trainer.py`` runs it, and on three ranks, once each; docs/trainer.md starts both."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.sample_trainer.bundled import FOLDER, module
from tests.support.forked import ALONE, Ran, run_forked

pytestmark = pytest.mark.slow

TRAINER = FOLDER / "trainer.py"
RANKS = 3


def train(folder: Path, place: Path, **options: Any) -> Ran:
    words = ("parallel.device=cpu", "train.steps=8", "run.log_every=3", f"run.folder={place}")
    ran = run_forked(TRAINER, folder / "ran", *words, record=False, **options)
    assert set(ran.statuses) == {0}, ran.errors
    return ran


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("alone")
    train(folder, folder / "new", nproc=1, environ=ALONE)
    return folder / "new"


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    ran = train(folder, folder / "new", nproc=RANKS)
    # Rank 0 alone logs: two epochs and two evaluations.
    assert [sum("loss" in line for line in errors.splitlines()) for errors in ran.errors] == [4, 0, 0]
    return folder / "new"


def summaries(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(folder.glob("rank*.json"))]


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    every = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line for line in every if line["kind"] == kind]


def checkpoint(run: Path) -> dict[str, Any]:
    """The state after the last step."""
    state: dict[str, Any] = torch.load(run / "checkpoints" / "step-00000016.pt", weights_only=True)
    return state


def test_it_learns_without_a_launcher(alone):
    (said,) = summaries(alone)
    assert (said["world_size"], said["steps"], said["samples"]) == (1, 16, 128)
    assert said["first_loss"] > 5
    assert said["last_loss"] < 4
    assert said["evaluation_loss"] < 4


def test_a_seed_gives_the_same_run_again(alone, tmp_path):
    train(tmp_path, tmp_path / "new", nproc=1, environ=ALONE)
    first, again = (module("states").checksum(checkpoint(run)) for run in (alone, tmp_path / "new"))
    assert again == first


def test_it_learns_together(together):
    said = summaries(together)
    assert [one["rank"] for one in said] == [0, 1, 2]
    assert {one["samples"] for one in said} == {128 * RANKS}
    assert said[0]["last_loss"] < 4


def test_all_ranks_end_with_the_same_weights_and_losses(together):
    said = summaries(together)
    assert len({one["weights"] for one in said}) == 1
    assert [one["difference"] for one in said] == [None] * RANKS
    for name in ("first_loss", "last_loss", "evaluation_loss"):
        assert len({one[name] for one in said}) == 1


def test_nothing_incomplete_is_left(together):
    assert sorted(file.name for file in together.iterdir()) == [
        "checkpoints",
        "metrics.jsonl",
        *(f"rank{rank}.json" for rank in range(RANKS)),
        "run.json",
    ]


def test_the_weights_load_into_the_bare_model_and_evaluate_the_same(together):
    """Each held-out sample counts once, though they do not divide evenly between the ranks."""
    config = module("config").read_config(None)
    material = module("data").load(config.data)
    held_out = material.held_out
    assert len(held_out) % RANKS != 0
    model = module("models").ByteTransformer(config.model, config.data.context)
    model.load_state_dict(checkpoint(together)["model"])
    assert module("states").checksum(model.state_dict()) == summaries(together)[0]["weights"]
    inputs, targets = map(torch.stack, zip(*(held_out[i] for i in range(len(held_out))), strict=True))
    with torch.no_grad():
        scores = model(inputs).flatten(0, 1)
        exact = torch.nn.functional.cross_entropy(scores.double(), targets.flatten())
    assert summaries(together)[0]["evaluation_loss"] == pytest.approx(float(exact), rel=1e-6)
    accuracy = float((scores.argmax(1) == targets.flatten()).double().mean())
    assert lines(together, "evaluation")[-1]["evaluation_accuracy"] == pytest.approx(accuracy, abs=1e-4)


def test_the_run_folder_tells_the_run(together):
    run = json.loads((together / "run.json").read_text())
    assert (run["world_size"], run["device"], run["backend"]) == (RANKS, "cpu", "gloo")
    assert (run["status"], run["steps"], run["config"]["train"]["steps"]) == ("finished", 16, 8)
    assert run["started"] < run["finished"]
    steps = lines(together, "step")
    assert [line["step"] for line in steps] == [3, 6, 8, 9, 12, 15, 16]
    assert steps[-1]["samples"] == 16 * 8 * RANKS
    names = {"loss", "lr", "grad_norm", "samples_per_second", "seconds", "memory_bytes"}
    assert all(line[name] > 0 for line in steps for name in names)
    assert [line["step"] for line in lines(together, "checkpoint")] == [16]
