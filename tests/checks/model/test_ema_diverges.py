from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.training import CopyForward
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import KEYS, recorded, replace, where
from tests.support.training import with_update


def evaluating(digests, ranks=(0, 1), time=9.0, change=lambda rank, one: one):
    def altered(rank, one):
        own = (CopyForward(0, 0, time, where(67), digests(rank)),) if rank in ranks else ()
        return replace(change(rank, one), record=Record.made(*own))

    return recorded(2, altered)


def apart(rank):
    return {"weight": f"average of {rank}", "bias": "equal", "norm.running_mean": "equal"}


def test_each_rank_evaluates_another_average():
    finding = only_finding("DD226", Source.RUN, evaluating(apart))
    assert finding.level is Level.FAIL
    assert (
        finding.headline == "ranks 0-1 evaluate an averaged copy of Linear that differs between them: weight"
    )
    assert finding.where == where(67)


def test_buffers_of_a_copy_are_only_information():
    finding = only_finding(
        "DD226", Source.RUN, evaluating(lambda r: {"weight": "w", "norm.running_mean": f"{r}"})
    )
    assert finding.level is Level.INFO


def test_equal_averages_and_rank_0_alone_are_right():
    assert passed("DD226", Source.RUN, evaluating(lambda rank: {"weight": "w"})).text
    assert skipped("DD226", Source.RUN, evaluating(apart, ranks=(0,))).reason


def moved(rank, one):
    """Rank 0 takes other weights before step 2."""
    if rank:
        return one
    copied = {key: f"average {key}" for key in KEYS}
    later = [with_update(own, before=copied, after=copied) for own in one.steps[2:]]
    return replace(one, steps=(*one.steps[:2], *later))


def test_weights_that_differ_already_explain_their_averages():
    passed("DD226", Source.RUN, evaluating(apart, change=moved))


def test_a_copy_that_one_rank_wrote_back():
    trace = evaluating(lambda rank: {key: f"average {key}" for key in KEYS}, ranks=(0,), change=moved)
    finding = only_finding("DD226", Source.RUN, trace)
    assert finding.headline == "only rank 0 took the weights of an averaged copy, before step 2"
    assert finding.ranks == (0,)
