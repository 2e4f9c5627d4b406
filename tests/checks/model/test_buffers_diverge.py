from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Buffers
from ddpdoctor.trace.record import Record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where


def evaluating(digest, *, broadcast=False, ranks=(0, 1), when="evaluation"):
    def change(rank, one):
        wrapper = replace(
            one.wrappers[0], buffers=("norm.running_mean",), flags={"broadcast_buffers": broadcast}
        )
        own = Buffers(0, when, 5.0, {"norm.running_mean": digest(rank)}, where(64))
        return replace(one, wrappers=(wrapper,), record=Record.made(*([own] if rank in ranks else [])))

    return recorded(2, change)


def own(rank):
    return f"statistics of {rank}"


def test_each_rank_evaluates_with_its_own_statistics():
    finding = only_finding("DD216", Source.RUN, evaluating(own))
    assert finding.headline == "ranks 0-1 evaluate Linear with buffers of their own: 1 of 1 buffer differs"
    assert finding.where == where(30)


def test_equal_buffers_pass():
    assert (
        passed("DD216", Source.RUN, evaluating(lambda rank: "equal")).text
        == "buffers were equal in 1 evaluation"
    )


def test_what_does_not_mislead_anybody():
    reason = "no two ranks evaluated a model with buffers that are not broadcast"
    for trace in (evaluating(own, broadcast=True), evaluating(own, ranks=(0,)), evaluating(own, when="end")):
        assert skipped("DD216", Source.RUN, trace).reason == reason
