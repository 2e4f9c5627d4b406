"""DD103 and DD104 in the live group."""

from ddpdoctor.model import Source
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped


def shards(*, again=None, epoch_1=((4, 2, 0), (3, 1, 4))):
    first = ((0, 1, 2), (3, 4, 0))  # 5 samples for 2 ranks, 0 repeated as padding
    return record(
        "sampler",
        [
            {
                "samples": 5,
                "epoch_0": list(first[rank]),
                "again": list((again or first)[rank]),
                "epoch_1": list(epoch_1[rank]),
            }
            for rank in range(2)
        ],
    )


def test_a_sampler_that_shuffles_anew_passes():
    passed("DD103", Source.GROUP, shards())
    said = passed("DD104", Source.GROUP, shards())
    assert said.text == "DistributedSampler divides 5 samples among 2 ranks, 1 repeated as padding"


def test_set_epoch_without_effect():
    finding = only_finding("DD103", Source.GROUP, shards(epoch_1=((0, 1, 2), (3, 4, 0))))
    assert finding.headline == (
        "DistributedSampler gives ranks 0-1 the same order after set_epoch(1) as in epoch 0"
    )


def test_an_order_that_does_not_depend_on_the_epoch_alone():
    finding = only_finding("DD103", Source.GROUP, shards(again=((0, 1, 2), (4, 3, 0))))
    assert finding.ranks == (1,)
    assert "in a second pass of the same epoch" in finding.headline


def test_ranks_that_divide_different_orders():
    finding = only_finding("DD104", Source.GROUP, shards(epoch_1=((4, 2, 0), (4, 2, 1))))
    assert finding.headline == "DistributedSampler repeats 2 samples and leaves out 1 of 5 in epoch 1"
    assert [one.text for one in finding.evidence] == ["drawn more than once: 2, 4", "not drawn: 3"]


def test_one_rank_is_skipped_by_overlap():
    value = {"samples": 2, "epoch_0": [0, 1], "again": [0, 1], "epoch_1": [1, 0]}
    assert skipped("DD104", Source.GROUP, record("sampler", [value])).reason == "needs at least two ranks"
