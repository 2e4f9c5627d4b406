import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Collective, MeanLoss
from tests.support.group import record
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import replace, where
from tests.support.training import each_step, with_update

EQUAL = {"difference": None, "gradient": None, "tensors": 9}
GRADIENT = {"tensor": "0.weight", "element": 5, "got": 0.5, "expected": 0.25}


def test_the_gradient_and_its_reference_are_named():
    wrong = {**EQUAL, "gradient": GRADIENT}
    finding = only_finding("DD228", Source.GROUP, record("weights", [wrong, wrong]))
    assert finding.headline == (
        "DDP's gradient of 0.weight element 5 is 0.5 on ranks 0-1, 0.25 in one process on the same samples"
    )


def test_replicas_that_differ_are_the_cause():
    different = {**EQUAL, "gradient": GRADIENT, "difference": {"when": "after the wrap"}}
    assert (
        skipped("DD228", Source.GROUP, record("weights", [EQUAL, different])).reason
        == "replicas differ (DD206)"
    )


def test_the_right_gradient_passes():
    assert "concatenated batch" in passed("DD228", Source.GROUP, record("weights", [EQUAL])).text


def divided(factor, counts=(10, 30), given=(10.0, 30.0), *, is_sum=True, used=0.5, backwards=1, **of_call):
    """Each step multiplies a loss over ``counts`` by ``factor(count)``, after a sum of the counts over the ranks."""

    def change(rank, own):
        loss = MeanLoss(where(47), "cross_entropy", counts[rank], factor=factor(counts[rank]), is_sum=is_sum)
        call = Collective(
            own.time + 0.1, where(46), "all_reduce", reduce="sum", given=(given[rank],), got=(sum(given),)
        )
        backward = replace(own.backwards[-1], norms={"weight": 0.5})
        changed = replace(
            own,
            losses=(loss,) * backwards,
            collectives=(replace(call, **of_call),),
            backwards=(backward,) * backwards,
        )
        return with_update(changed, norms={"weight": used})

    return each_step(change)


@pytest.mark.parametrize(
    "trace",
    [
        divided(lambda count: 1 / 40),
        divided(lambda count: count / 40, is_sum=False),
        divided(lambda count: 1 / 4, given=(1.0, 3.0)),  # of samples with ten elements each
        divided(lambda count: 1 / 80, given=(20.0, 60.0), backwards=2),  # of the whole window
    ],
)
def test_a_loss_over_the_count_of_all_ranks(trace):
    finding = only_finding("DD228", Source.RUN, trace)
    assert "its gradients by 2 ranks again: 2 times too small" in finding.headline
    assert finding.where == where(47)
    assert finding.evidence[-1].where == where(46)


@pytest.mark.parametrize(
    "trace",
    [
        divided(lambda count: 2 / 40),  # times the ranks
        divided(lambda count: 2 * count / 40, is_sum=False),
        divided(lambda count: 1 / count),  # the rank's own count
        divided(lambda count: 1 / 40, used=1.0),  # gradients are multiplied before the update
        divided(lambda count: 1 / 40, differentiable=True),
        divided(lambda count: 1 / 40, given=(25.0, 15.0)),  # not what the loss counts
        divided(lambda count: 1 / 40, got=()),  # nobody has waited for the sum
        # Two micro-batches, each a mean of its own, and their samples counted for the log.
        divided(lambda count: 1 / 2, (10, 10), (10.0, 10.0), is_sum=False, backwards=2),
        divided(lambda count: 1.0, is_sum=False),
    ],
)
def test_other_counts_of_all_ranks(trace):
    skipped("DD228", Source.RUN, trace)
