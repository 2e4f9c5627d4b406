import pytest

from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.data import LoaderMade
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where


def replaced(name, training=True):
    def change(rank, one):
        return replace(
            one,
            loaders=tuple(replace(own, made=1, data=0) for own in one.loaders),
            record=Record.made(LoaderMade(0, 0, name)),
            passes=tuple(replace(p, training=training) for p in one.passes),
        )

    return recorded(change=change)


def test_a_weighted_sampler_that_was_replaced():
    finding = only_finding("DD110", Source.RUN, replaced("WeightedRandomSampler"))
    assert finding.level is Level.WARN
    assert finding.headline == (
        "ranks 0-1 train with DistributedSampler instead of the WeightedRandomSampler that the script made"
    )
    assert finding.where == where(40)


@pytest.mark.parametrize("name", [None, "RandomSampler", "SequentialSampler", "SeedableRandomSampler"])
def test_a_plain_sampler_is_replaced_as_one_wants(name):
    passed("DD110", Source.RUN, replaced(name))


def test_evaluation_is_skipped():
    skipped("DD110", Source.RUN, replaced("WeightedRandomSampler", training=False))
