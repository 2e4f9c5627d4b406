"""Three ranks against one process on the concatenated batch, and the helpers by which ranks agree.

One launch trains in all the ways; see scripts/equality.py and scripts/helpers.py.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked import run_forked

pytestmark = pytest.mark.slow

RANKS = 3
SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    ran = run_forked(
        SCRIPTS / "equality.py", tmp_path_factory.mktemp("equality") / "ran", nproc=RANKS, record=False
    )
    assert ran.statuses == (0,) * RANKS, ran.errors
    return [json.loads(line) for line in ran.outputs[0].splitlines()]


@pytest.fixture(scope="module")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    ran = run_forked(
        SCRIPTS / "helpers.py", tmp_path_factory.mktemp("helpers") / "ran", nproc=RANKS, record=False
    )
    assert ran.statuses == (0,) * RANKS, ran.errors
    return [json.loads(output) for output in ran.outputs]


def test_every_way_is_compared(ways):
    assert len(ways) == 8


def test_loss_and_gradient_are_those_of_one_process(ways):
    assert {
        tuple(way["words"]): (way["loss"], way["gradient"])
        for way in ways
        if way["loss"] > 1e-6 or way["gradient"] > 1e-6
    } == {}


def test_every_rank_has_the_same_gradient(ways):
    assert all(way["same"] for way in ways)


def test_the_evaluation_is_that_of_one_process(ways):
    assert max(way["evaluation"] for way in ways) < 1e-6


def test_no_sample_is_repeated_and_none_is_lost_but_by_dropping(ways):
    for way in ways:
        assert way["repeated"] == 0
        if "train.steps=9" not in way["words"]:
            assert way["samples"] == [48 if "data.uneven=drop" in way["words"] else 49] * 2


def test_each_epoch_has_another_order(ways):
    assert not any(way["same_order"] for way in ways)


def test_ranks_take_equally_many_steps(ways):
    assert all(len(set(way["steps"])) == 1 for way in ways)


def test_gradients_averaged_by_hand_are_ddps_to_the_bit(helpers):
    assert [one["by_hand"]["equal"] for one in helpers] == [[True] * 3] * RANKS
    assert helpers[0]["by_hand"]["buckets"] > 1  # or the layout would have nothing to decide


def test_a_last_bit_that_differs_is_found(helpers):
    assert [one["difference"]["before"] for one in helpers] == [None] * RANKS
    found = [one["difference"]["found"] for one in helpers]
    assert found == [None, {"tensor": "weight", "element": 5}, None]


def test_a_mean_weighs_every_sample_equally(helpers):
    assert [one["mean"] for one in helpers] == [10.0] * RANKS  # sums 0, 10, 20 of 0, 1, 2 samples


def test_an_error_of_one_rank_is_one_of_all_and_told_once(helpers):
    assert {one["error"]["printed_by"] for one in helpers} == {1}
    assert helpers[1]["error"]["text"] == "rank 1 found no text"


def test_ranks_stop_together_though_they_measure_differently(helpers):
    assert helpers[0]["patience"] == [
        [True, False],
        [True, False],
        [False, False],
        [False, True],
        [False, True],
    ]
    assert all(one["patience"] == helpers[0]["patience"] for one in helpers)
