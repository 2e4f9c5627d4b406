"""DD103 in the live group."""

from ddpdoctor.model import Source
from tests.support.group import record
from tests.support.judging import only_finding, passed


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


def test_set_epoch_without_effect():
    finding = only_finding("DD103", Source.GROUP, shards(epoch_1=((0, 1, 2), (3, 4, 0))))
    assert finding.headline == (
        "DistributedSampler gives ranks 0-1 the same order after set_epoch(1) as in epoch 0"
    )


def test_an_order_that_does_not_depend_on_the_epoch_alone():
    finding = only_finding("DD103", Source.GROUP, shards(again=((0, 1, 2), (4, 3, 0))))
    assert finding.ranks == (1,)
    assert "in a second pass of the same epoch" in finding.headline
