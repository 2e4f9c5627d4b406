"""The bundled trainer on a GPU: float16 and bfloat16, resumed bit for bit; and the benchmark."""

from pathlib import Path

import pytest
import torch

from tests.gpu.support import examined, keep, on_gpu
from tests.support.command import ddpdoctor

pytestmark = on_gpu


def weights(folder: Path) -> dict[str, list[float]]:
    """Of the newest checkpoint."""
    newest = max((folder / "runs/run/checkpoints").glob("step-*.pt"))
    return {name: it.tolist() for name, it in torch.load(newest, weights_only=True)["model"].items()}


def train(folder: Path, precision: str, *settings: str) -> None:
    words = ("run.folder=runs/run", "parallel.backend=nccl", f"train.precision={precision}", *settings)
    done = ddpdoctor("train", "--nproc", "1", *words, cwd=folder)
    keep(f"train-{precision}-{folder.name}-{len(settings)}.txt", done.out + done.err)
    assert done.status == 0, done.err


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_training_that_goes_on_ends_bit_for_bit_as_one_in_a_piece(precision, tmp_path):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    whole.mkdir()
    parts.mkdir()
    train(whole, precision, "train.epochs=2")
    train(parts, precision, "train.epochs=1")
    train(parts, precision, "train.epochs=2", "checkpoint.resume=true")
    assert weights(parts) == weights(whole)


def test_the_benchmark_has_figures(tmp_path):
    done = examined("bench", "bench", "--quick", "--backend", "nccl", "--nproc", "1", cwd=tmp_path)
    assert done.status == 0, done.err
