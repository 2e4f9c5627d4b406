from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.data import Sampler
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import evaluating
from tests.support.recordings import recorded, where


def padded(total, distributed=True):
    def change(rank, one):
        own = Sampler("DistributedSampler", distributed, rank, 2, shuffle=False, total=total)
        return evaluating(one, range(rank, 16, 2), sampler=own)

    return recorded(change=change)


def test_repeats_are_information():
    finding = only_finding("DD501", Source.RUN, padded(18))
    assert finding.level is Level.INFO
    assert finding.headline == "2 ranks evaluate 18 samples of HeldOut, which has 16"
    assert "repeats 2 samples" in finding.why
    assert "12.50%" in finding.why
    assert finding.where == where(60)


def test_shards_that_need_no_padding_pass():
    assert passed("DD501", Source.RUN, padded(16)).text == "no sampler pads the 16 samples of HeldOut"
    passed("DD501", Source.RUN, padded(None, distributed=False))


def test_no_evaluation_is_skipped():
    assert "do not evaluate" in skipped("DD501", Source.RUN, recorded()).reason
