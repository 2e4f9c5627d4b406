import pytest

from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.data import Sampler
from ddpdoctor.recorder.events.files import Printed
from ddpdoctor.recorder.events.training import Collective, GatheredForMetrics
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


def summed(text, given=(29.0,), total=None, divided=False):
    """An evaluation by each rank, whose sums an all_reduce adds up, and what rank 0 prints."""

    def change(rank, one):
        own = given[rank % len(given)]
        got = sum(given[i % len(given)] for i in range(2)) if total is None else total
        call = Collective(11.2, where(64), "all_reduce", reduce="sum", shape=(), given=(own,), got=(got,))
        printed = (Printed(11.3, where(66), text),) if rank == 0 else ()
        evaluated = evaluating(one, range(rank if divided else 0, 16, 2 if divided else 1))
        return replace(evaluated, collectives=(*one.collectives, call), record=Record.made(*printed))

    return recorded(change=change)


def test_sums_over_the_whole_set_are_added_up():
    finding = only_finding("DD501", Source.RUN, summed("test loss 3.6250, lr 0.1000"))
    assert finding.level is Level.FAIL
    assert finding.headline == (
        "2 ranks evaluate all 16 samples of HeldOut each, and the sum over the ranks is divided by 16: "
        "2 times too large"
    )
    assert finding.where == where(64)
    assert "29 given, 58 got" in str(finding.evidence)


def test_a_sum_in_percent():
    only_finding("DD501", Source.RUN, summed("accuracy 181.25 %", (14.5,)))


@pytest.mark.parametrize(
    "trace",
    [
        summed("test loss 1.8125"),  # divided by the ranks, too
        summed("test loss 3.6250", (28.0, 30.0)),  # the sums of parts
        summed("test loss 3.6"),  # a number that others may have
        summed("accuracy 0.8750", (7.0,)),  # hits, perhaps of a part
        summed("test loss 3.6250", divided=True),
        summed("test loss 3.6250", total=29.0),  # nothing was added up
    ],
)
def test_other_numbers_pass(trace):
    passed("DD501", Source.RUN, trace)


def test_no_evaluation_is_skipped():
    assert "do not evaluate" in skipped("DD501", Source.RUN, recorded()).reason
