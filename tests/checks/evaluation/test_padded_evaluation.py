from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.data import Sampler
from ddpdoctor.recorder.events.training import GatheredForMetrics
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.loading import evaluating
from tests.support.recordings import recorded, replace, where


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


def shared_out(change=lambda recording: recording):
    """accelerate's way: no sampler knows ranks, and the first samples are drawn again behind the last."""
    orders = {0: (0, 1, 2, 3, 8, 9, 10, 11), 1: (4, 5, 6, 7, 12, 13, 14, 15, 0, 1, 2, 3)}
    shard = Sampler("BatchSamplerShard", distributed=True, replicas=2)
    return recorded(change=lambda rank, one: change(evaluating(one, orders[rank], sampler=shard)))


def test_samples_that_two_ranks_draw_are_repeats():
    finding = only_finding("DD501", Source.RUN, shared_out())
    assert finding.headline == "2 ranks evaluate 20 samples of HeldOut, which has 16"


def test_repeats_that_the_script_leaves_out_pass():
    passed(
        "DD501",
        Source.RUN,
        shared_out(lambda one: replace(one, record=Record.made(GatheredForMetrics(11.0, where(63))))),
    )


def test_sums_that_are_gathered_after_the_loop_still_have_the_repeats():
    late = shared_out(lambda one: replace(one, record=Record.made(GatheredForMetrics(11.5, where(66)))))
    assert only_finding("DD501", Source.RUN, late).level is Level.INFO


def test_every_rank_may_evaluate_everything():
    passed("DD501", Source.RUN, recorded(change=lambda rank, one: evaluating(one, range(16))))


def test_no_evaluation_is_skipped():
    assert "do not evaluate" in skipped("DD501", Source.RUN, recorded()).reason
