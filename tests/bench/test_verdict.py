from dataclasses import replace

import pytest

from ddpdoctor.bench.report import to_json, to_text
from ddpdoctor.bench.results import limit, put_together
from ddpdoctor.bench.setting import Setting
from tests.bench.timed import alone, rank


def results(*ranks, cpus=8.0, busy=0.0, threads=1):
    setting = Setting(max(1, len(ranks)), threads=threads)
    measured = {1: alone(), 2: list(ranks)} if ranks else {1: alone()}
    return put_together(setting, measured, cpus=cpus, torch="2.13.0", busy=busy)


def test_exposed_communication():
    assert limit(results(rank(exposed=0.020), rank(exposed=0.020))) == (
        "2 ranks reach 50 % of perfect weak scaling. What limits it: averaging 3.9 KiB of gradients, of which "
        "20.0 ms are not hidden behind backward, 50 % of a step; larger batches per rank, or gradient accumulation "
        "under no_sync, reduce it."
    )


def test_ranks_that_share_too_few_cpus():
    assert limit(results(rank(slower=2), rank(slower=2), cpus=1.0)) == (
        "2 ranks reach 50 % of perfect weak scaling. What limits it: computing, for forward and backward take 2.0 "
        "times as long as for one rank; 2 ranks of 1 thread share 1 CPU."
    )


def test_ranks_that_compute_slower_on_cpus_enough_compete_for_something_else():
    assert "compete for memory bandwidth" in limit(results(rank(slower=2), rank(slower=2)))
    gpus = results(rank(slower=2), rank(slower=2))
    assert "GPUs" in limit(replace(gpus, setting=replace(gpus.setting, backend="nccl")))


@pytest.mark.parametrize(
    ("phase", "expected"), [(0, "loading data, which takes 21.0 ms"), (3, "the optimizer's")]
)
def test_other_parts_of_a_step(phase, expected):
    ranks = [rank(), rank()]
    for one in ranks:
        for kind in ("synced", "unsynced"):
            one["steps"][kind] = [
                [seconds + 0.020 * (at == phase) for at, seconds in enumerate(step)]
                for step in one["steps"][kind]
            ]
    assert expected in limit(results(*ranks))


def test_good_scaling_is_said_to_be_good():
    text = limit(results(rank(exposed=0.001), rank(exposed=0.001)))
    assert text.startswith(
        "little limits it: 2 ranks reach 95 % of perfect weak scaling. The largest cost: averaging"
    )


def test_one_rank_has_no_scaling():
    text = limit(results())
    assert text == "one rank spends 50 % of its step in backward; more ranks were not measured."


def test_the_text_fits_80_columns_and_says_that_others_were_busy():
    text = to_text(results(rank(exposed=0.02), rank(exposed=0.02), busy=1.4))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "other processes used 1.4 CPUs before" in text
    assert "note:" not in to_text(results(rank(), rank()))


def test_json_has_what_was_measured_and_the_sentence():
    told = to_json(results(rank(), rank()))
    assert told["weak"][1]["efficiency"] == 1.0
    assert told["setting"]["nproc"] == 2
    assert told["limit"].startswith("little limits it")
