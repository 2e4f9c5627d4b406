"""Less data than ranks: a rank without any takes part, in training and in evaluation."""

import pytest

from tests.sample_trainer.bundled import FOLDER
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow

CONTEXT, SAMPLES = 10, 7
SIZE = CONTEXT * SAMPLES + 1 + CONTEXT + 1  # and one sample that is held out


def train(folder, *words):
    text = folder / "text"
    text.write_text("some text " * 9)
    text.write_bytes(text.read_bytes()[:SIZE])
    keys = ("data.source=" + str(text), f"data.context={CONTEXT}", f"data.held_out={(CONTEXT + 1.5) / SIZE}")
    return run_forked(
        FOLDER / "trainer.py", folder / "ran", *keys, *words, "run.log_every=1", nproc=3, record=False
    )


@pytest.mark.parametrize(
    "words",
    [
        ("data.uneven=pad", "data.batch_size=8", "checkpoint.every=1"),
        ("data.uneven=pad", "data.batch_size=4", "train.accumulation=3"),
    ],
    ids="-".join,
)
def test_a_rank_without_data_takes_part(tmp_path, words):
    ran = train(tmp_path, *words)
    assert ran.statuses == (0, 0, 0), ran.errors
    assert f"over {CONTEXT} targets" in ran.errors[0]
