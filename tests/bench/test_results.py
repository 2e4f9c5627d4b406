import json
from dataclasses import asdict

import pytest

from ddpdoctor.bench.results import bus_factor, put_together
from ddpdoctor.bench.setting import Setting, default_setting
from ddpdoctor.recorder.events.decode import from_plain
from tests.bench.timed import alone, rank

TWO = Setting(2)


def results(*ranks, setting=TWO, **measured):
    return put_together(setting, {1: alone(), 2: list(ranks)}, cpus=2.0, torch="2.13.0", busy=0.0, **measured)


def test_a_step_takes_as_long_as_its_slowest_rank():
    found = results(rank(), rank(slower=2.0))
    assert [one.step.median for one in found.weak] == [pytest.approx(0.020), pytest.approx(0.040)]


def test_weak_scaling_is_perfect_where_a_step_takes_as_long():
    found = results(rank(), rank())
    assert [(s.ranks, s.speed_up, s.efficiency) for s in found.weak] == [(1, 1.0, 1.0), (2, 2.0, 1.0)]


def test_what_averaging_adds_to_backward_is_exposed_communication():
    one, two = results(rank(exposed=0.006), rank(exposed=0.004)).splits
    assert (one.exposed, one.backward) == pytest.approx((0.0, 0.010))
    assert two.exposed == pytest.approx(0.005)
    assert two.backward == pytest.approx(0.010)
    assert two.other == pytest.approx(0.001)


def test_the_parts_of_a_step_add_up_to_it():
    found = results(rank(exposed=0.006), rank(exposed=0.004))
    assert [split.total for split in found.splits] == pytest.approx([s.step.median for s in found.weak])


def test_a_step_that_averaging_makes_quicker_by_chance_has_no_negative_part():
    split = results(rank(exposed=-0.001), rank(exposed=-0.001)).splits[1]
    assert split.exposed == 0.0
    assert split.backward == pytest.approx(0.009)


def test_bandwidths_are_those_of_nccl_tests():
    calls = {"operation": "all_reduce", "bytes": 1_000_000, "seconds": [0.001, 0.002, 0.003]}
    slower = {**calls, "seconds": [0.002, 0.002, 0.002]}
    (found,) = results({**rank(), "collectives": [calls]}, {**rank(), "collectives": [slower]}).collectives
    assert found.seconds.median == 0.002
    assert found.algorithm_bandwidth == pytest.approx(5e8)
    assert found.bus_bandwidth == pytest.approx(5e8)
    factors = {
        name: bus_factor(name, 4) for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")
    }
    assert factors == {"all_reduce": 1.5, "all_gather": 0.75, "reduce_scatter": 0.75, "broadcast": 1.0}


def test_an_operation_that_the_backend_does_not_have_says_so():
    refused = {"operation": "reduce_scatter", "bytes": 64, "unsupported": "not in gloo"}
    (found,) = results({**rank(), "collectives": [refused]}, {**rank(), "collectives": [refused]}).collectives
    assert (found.seconds, found.unsupported) == (None, "not in gloo")


@pytest.mark.parametrize(("nproc", "ranks"), [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6))])
def test_powers_of_two_and_the_most_are_measured(nproc, ranks):
    assert Setting(nproc).ranks == ranks


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("quick", [True, False])
def test_a_setting_survives_its_file(backend, quick):
    setting = default_setting(4, backend, quick=quick)
    assert from_plain(Setting, json.loads(json.dumps(asdict(setting)))) == setting
