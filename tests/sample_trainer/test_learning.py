"""Each task is learned to a stated value, on two ranks."""

import json
from pathlib import Path

import pytest

from tests.sample_trainer.bundled import FOLDER
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow


def final_evaluation(folder: Path, *words: str) -> dict[str, float]:
    ran = run_forked(FOLDER / "trainer.py", folder / "ran", *words, "run.folder=out", nproc=2, record=False)
    assert ran.statuses == (0, 0), ran.errors
    lines = [json.loads(line) for line in (ran.folder / "out" / "metrics.jsonl").read_text().splitlines()]
    evaluation: dict[str, float] = [line for line in lines if line["kind"] == "evaluation"][-1]
    return evaluation


def test_the_next_byte_is_learned(tmp_path):
    found = final_evaluation(tmp_path, "train.epochs=1", "train.steps=150", "data.held_out=0.02")
    assert found["evaluation_loss"] < 2.7  # 5.5 before: each of 256 bytes as likely as any other
