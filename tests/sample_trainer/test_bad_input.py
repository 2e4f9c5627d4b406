"""What a user gets wrong: one clear line from one rank, exit status 2, and all ranks gone."""

from pathlib import Path

import pytest

from tests.sample_trainer.bundled import FOLDER
from tests.support.forked import ALONE, run_forked

pytestmark = pytest.mark.slow

TRAINER = FOLDER / "trainer.py"


def told(folder: Path, *words: str) -> str:
    """The one line that two ranks write on stderr together."""
    ran = run_forked(TRAINER, folder / "ran", *words, nproc=2, record=False)
    assert ran.statuses == (2, 2), ran.errors
    lines = [
        line for text in ran.errors for line in text.splitlines() if "trainer: " in line or "Error" in line
    ]
    assert len(lines) == 1, ran.errors
    return lines[0].removeprefix("trainer: ")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--config", "no.yaml"), "cannot read the configuration no.yaml: No such file or directory"),
        (("train.epoch=2",), "unknown key 'train.epoch'; did you mean train.epochs?"),
        (("--no-such-option",), "unrecognized arguments: --no-such-option"),
        (("parallel.world_size=0",), "parallel.world_size is 0; it has to be at least 1"),
        (("--data", "no-such-text"), "data.source no-such-text: No such file or directory"),
        (("--data", "/dev/zero"), "data.source /dev/zero is neither a file nor a folder"),
        (("run.folder=/dev/null/run",), "the run folder cannot be created: Not a directory"),
        (("train.precision=float16", "parallel.device=cpu"), "train.precision=float16 needs a GPU"),
        (("parallel.device=cuda",), "rank 0 needs the GPU 0 of its own, and 0 are visible"),
        (("parallel.backend=nccl",), "parallel.backend=nccl needs GPUs, and torch sees none here"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_one_line_and_all_are_gone(tmp_path, words, said):
    assert told(tmp_path, *words).startswith(said)


def test_a_batch_that_is_larger_than_the_data_is_named(tmp_path):
    said = told(tmp_path, "data.batch_size=100000")
    assert said.endswith(
        "training samples are less than one batch of 100000 on each of 2 ranks; use data.uneven=pad or a smaller "
        "data.batch_size"
    )


def test_a_file_of_a_few_bytes_has_nothing_to_train_on(tmp_path):
    (tmp_path / "text").write_text("too short")
    assert told(tmp_path, f"data.source={tmp_path / 'text'}").endswith("has no sample to train on")


@pytest.mark.parametrize("word", ["train.seed=20260101", "run.name=../elsewhere"])
def test_a_date_is_a_seed_and_no_name_leads_out_of_runs(tmp_path, word):
    ran = run_forked(
        TRAINER, tmp_path / "ran", "train.steps=1", "train.epochs=1", word, nproc=2, record=False
    )
    assert ran.statuses == (0, 0), ran.errors
    (run,) = (ran.folder / "runs").iterdir()
    assert (run / "run.json").is_file()


def test_metrics_that_cannot_be_written_end_all_ranks(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    (run / "metrics.jsonl").symlink_to("/dev/full")
    words = ("train.steps=3", "train.epochs=1", "run.log_every=1", f"run.folder={run}")
    assert told(tmp_path, *words) == f"{run}/metrics.jsonl cannot be written: No space left on device"
    assert "failed: TrainerError" in (run / "run.json").read_text()


def told_alone(folder: Path, *words: str, **variables: str) -> str:
    """The last line of a process that no launcher started, with these variables."""
    ran = run_forked(TRAINER, folder / "ran", *words, nproc=1, record=False, environ={**ALONE, **variables})
    assert ran.statuses == (2,), ran.errors
    (line,) = (line for line in ran.errors[0].splitlines() if "rainer" in line)
    return line.removeprefix("trainer: ")


def test_ranks_that_nobody_started_are_not_waited_for(tmp_path):
    line = told_alone(tmp_path, "parallel.world_size=2")
    assert line.startswith("parallel.world_size is 2 and nobody started so many ranks: use torchrun")


def test_a_dry_run_shows_what_would_be_done_on_one_rank(tmp_path):
    ran = run_forked(TRAINER, tmp_path / "ran", "--dry-run", "train.epochs=7", nproc=2, record=False)
    assert ran.statuses == (0, 0)
    assert "  epochs: 7\n" in ran.outputs[0]
    assert "#   WORLD_SIZE=2\n" in ran.outputs[0]
    assert ran.outputs[1] == ""
    assert not (ran.folder / "runs").exists()
