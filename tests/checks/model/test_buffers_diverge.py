import pytest

from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.training import Buffers, Collective
from ddpdoctor.recorder.patches.calls import BatchNormUpdate
from ddpdoctor.trace.data import Pass
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
    assert finding.headline == "ranks 0-1 evaluate Linear with different buffers: 1 of 1 buffer differs"
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


def updating(statistics, calls=(), order=lambda rank: range(rank, 16, 2)):
    """Every rank calls update_bn from 20 s to 22 s."""

    def change(rank, one):
        pass_ = Pass(0, 7, where(62), 20.1, 21.9, indices=tuple(order(rank)))
        update = BatchNormUpdate(20.0, 22.0, where(63), {"1.running_mean": statistics(rank)})
        record = Record.made(update)
        return replace(one, passes=(*one.passes, pass_), record=record, collectives=calls)

    return recorded(change=change)


def test_statistics_of_an_averaged_model_from_each_ranks_part():
    finding = only_finding("DD216", Source.RUN, updating(own))
    assert finding.level is Level.WARN
    assert finding.headline == (
        "update_bn computes the BatchNorm statistics on ranks 0-1 from each rank's own part of the data"
    )
    assert finding.where == where(63)


@pytest.mark.parametrize(
    "trace",
    [
        pytest.param(updating(own, (Collective(22.5, where(64), "all_reduce"),)), id="averaged by hand"),
        pytest.param(updating(own, order=lambda rank: range(16)), id="over all samples, with rounding"),
        pytest.param(updating(lambda rank: "the same"), id="equal"),
    ],
)
def test_statistics_that_are_right(trace):
    skipped("DD216", Source.RUN, trace)
