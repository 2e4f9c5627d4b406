"""Saving and loading on several ranks: one launch answers all the cases, another has another number of ranks."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.forked import Ran, run_forked

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("saves_and_loads.py")


def answers(ran: Ran) -> list[dict[str, Any]]:
    assert set(ran.statuses) == {0}, ran.errors
    return [json.loads(output) for output in ran.outputs]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checkpoints")


@pytest.fixture(scope="module")
def ranks(place: Path) -> list[dict[str, Any]]:
    return answers(run_forked(SCRIPT, place / "ran", str(place), record=False))


def test_every_rank_has_its_state_again(ranks):
    for one in ranks:
        resumed = one["resumed"]
        assert resumed["step"] == 2
        assert all(resumed["equal"])


def test_buffers_are_those_of_rank_0_as_ddp_has_it(ranks):
    """The ranks' averages were one apart."""
    assert [one["resumed"]["averages"] for one in ranks] == [0, -1]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("model differs", "model differs between ranks: rank 1 differs from rank 0"),
        ("optimizer differs", "optimizer differs between ranks: rank 1 differs from rank 0"),
        ("later", "{place}/good holds step-00000002.pt, and this run starts at step 1"),
        ("no folder", "{place}/a file cannot be used for checkpoints: File exists"),
        ("unwritable", "the checkpoint of step 4 cannot be written to {place}/a file: File exists"),
        ("missing", "there is no checkpoint {place}/nothing"),
        ("other model", "{place}/good/step-00000002.pt does not fit this run: model: another model: 0.weight is "),
        ("lacks", "{place}/good/step-00000002.pt has no state of: scaler"),
        ("no checkpoint", "{place}/bad1/step-00000002.pt does not fit this run: it is no checkpoint: list indices"),
        ("corrupt", "{place}/bad2/step-00000002.pt is corrupt: it has changed since it was written"),
        ("forged", "{place}/bad3/step-00000002.pt does not fit this run: it is no checkpoint: Weights only load fai"),
        ("model is none", "{place}/bad5/step-00000002.pt does not fit this run: model: "),
    ],
)  # fmt: skip
def test_every_rank_raises_the_same_line(ranks, place, case, said):
    assert ranks[0][case].startswith(said.format(place=place))
    assert "\n" not in ranks[0][case]
    assert {one[case] for one in ranks} == {ranks[0][case]}


def test_nothing_is_written_where_replicas_differ(ranks):
    assert ranks[0]["after differences"] == ["step-00000002.pt"]


def test_no_code_of_a_checkpoint_runs(ranks, place):
    assert not list(place.rglob("evil-was-here"))


def test_nothing_to_go_on_from_is_no_error(ranks):
    assert [one["nothing there"] for one in ranks] == [None, None]


def test_the_weights_load_into_the_bare_model(ranks, place):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    state = torch.load(place / "good" / "step-00000002.pt", weights_only=True)
    model.load_state_dict(state["model"], strict=True)


def test_another_number_of_ranks_goes_on_at_the_same_sample(ranks, place, tmp_path):
    ran = run_forked(SCRIPT, tmp_path / "ran", str(place), "again", nproc=3, record=False)
    for one in answers(ran):
        assert one["step"] == 2
        assert one["progress"].items() >= {"step": 2, "epoch": 1, "batches": 2, "samples": 20}.items()
    assert "step-00000002.pt was written by 2 ranks and this run has 3: the data goes on" in ran.errors[0]
