"""Every configuration trains at 1, 2 and 4 ranks, and ddpdoctor finds nothing in it.

With two ranks each runs by itself under the recorder, as ``ddpdoctor check sample_trainer/trainer.py --config ...``
would have it; with one and with four, all of them one after the other on the same ranks.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor.model import Level
from tests.sample_trainer.bundled import FOLDER
from tests.support.forked import run_forked

pytestmark = pytest.mark.slow

SCRIPTS = Path(__file__).parent / "scripts"
CONFIGURATIONS = sorted((FOLDER / "configs").glob("*.yaml"))
each = pytest.mark.parametrize(
    "file",
    CONFIGURATIONS,
    ids=lambda file: file.stem,
)


@each
def test_nothing_is_found_in_it(file, tmp_path):
    words = ("--config", str(file), "train.epochs=2", "train.steps=3", "data.held_out=0.01", "run.folder=out")
    ran = run_forked(FOLDER / "trainer.py", tmp_path / "ran", *words)
    assert ran.statuses == (0, 0), ran.errors
    assert [one.headline for one in ran.findings if one.level is not Level.INFO] == []
    assert_trained(ran.folder / "out", 2)


@pytest.fixture(scope="module", params=[1, 4])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[int, Path]:
    nproc: int = request.param
    names = [one.stem for one in CONFIGURATIONS]
    words = [
        f"{name}=--config+{FOLDER / 'configs' / name}.yaml+train.epochs=1+train.steps=2+data.held_out=0.005"
        for name in names
    ]
    folder = tmp_path_factory.mktemp(f"{nproc}-ranks") / "ran"
    ran = run_forked(SCRIPTS / "several.py", folder, *words, nproc=nproc, record=False)
    assert ran.statuses == (0,) * nproc, ran.errors
    assert ran.outputs[0].splitlines() == [f"{name} 0" for name in names], ran.errors
    return nproc, ran.folder


@each
def test_it_trains_on_one_rank_and_on_four(file, trained):
    nproc, folder = trained
    assert_trained(folder / file.stem, nproc)


def assert_trained(folder: Path, ranks: int) -> None:
    said: list[dict[str, Any]] = [json.loads(one.read_text()) for one in sorted(folder.glob("rank*.json"))]
    assert [one["world_size"] for one in said] == [ranks] * ranks
    assert len({one["weights"] for one in said}) == 1
    assert [one["difference"] for one in said] == [None] * ranks
    assert said[0]["steps"] > 0
    assert json.loads((folder / "run.json").read_text())["status"] == "finished"
