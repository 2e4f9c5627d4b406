"""A run that is complete is told to be, and stays as it is."""

from pathlib import Path

import pytest

from tests.sample_trainer.bundled import FOLDER
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow

SHORT = ("train.steps=2", "data.held_out=0.01", "checkpoint.resume=true", "train.epochs=3")


def told(folder: Path, name: str, *words: str) -> list[str]:
    """What rank 0 says of a training in one run folder."""
    keys = (*SHORT, f"run.folder={folder / 'run'}", *words)
    ran = run_forked(FOLDER / "trainer.py", folder / name, *keys, record=False)
    assert ran.statuses == (0, 0), ran.errors
    return [line for line in ran.errors[0].splitlines() if "step" in line or "early" in line]


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_that_stopped_early_goes_on_only_with_more_patience(tmp_path):
    stops = ("evaluation.patience=1", "evaluation.progress=100")
    assert told(tmp_path, "first", *stops)[-1] == "stopped early: no progress in 1 evaluations"
    left = files(tmp_path / "run")
    assert told(tmp_path, "again", *stops) == [
        "complete at step 4: stopped early, no progress in 1 evaluations; there is nothing left to train"
    ]
    assert files(tmp_path / "run") == left
    patient = told(tmp_path, "patient", "evaluation.patience=2", "evaluation.progress=100")
    assert patient[0] == "resumes at step 4, epoch 3"
    assert (tmp_path / "run" / "checkpoints" / "step-00000006.pt").exists()


def test_a_run_of_all_its_epochs_is_complete(tmp_path):
    told(tmp_path, "first", "train.epochs=1")
    left = files(tmp_path / "run")
    assert told(tmp_path, "again", "train.epochs=1") == [
        "complete at step 2: train.epochs=1; there is nothing left to train"
    ]
    assert files(tmp_path / "run") == left


def test_a_checkpoint_after_the_last_step_of_an_epoch_has_an_evaluation_left(tmp_path):
    told(tmp_path, "first", "train.epochs=1", "checkpoint.every=2")
    weights = files(tmp_path / "run" / "checkpoints")
    assert told(tmp_path, "again", "train.epochs=1", "checkpoint.every=2") == [
        "resumes at step 2, epoch 1",
        "epoch 1: there is nothing left to train after step 2",
    ]
    assert files(tmp_path / "run" / "checkpoints") == weights
