"""ddpdoctor's own checks on a trainer that saves and resumes: there is nothing to find."""

from pathlib import Path

import pytest

from ddpdoctor.model import Level
from tests.sample_trainer.bundled import FOLDER
from tests.support.forked import Ran, run_forked

pytestmark = pytest.mark.slow


def train(folder: Path, name: str, epochs: int) -> Ran:
    keys = ("train.steps=4", f"train.epochs={epochs}", "checkpoint.every=3", "checkpoint.resume=true")
    keys = (*keys, "evaluation.keep_best=true", f"run.folder={folder / 'run'}")
    return run_forked(FOLDER / "trainer.py", folder / name, *keys)


def test_nothing_is_found_in_saving_and_resuming(tmp_path):
    for name, epochs in (("first", 1), ("resumed", 2)):
        ran = train(tmp_path, name, epochs)
        assert set(ran.statuses) == {0}, ran.errors
        assert [one.headline for one in ran.findings if one.level is not Level.INFO] == []
        outcomes = {one.code: one.outcome.value for one in ran.results}
        assert {outcomes[code] for code in ("DD402", "DD407")} == {"pass"}
    # The weights were loaded, by their own names.
    assert {outcomes[code] for code in ("DD403", "DD404")} == {"pass"}
