import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Collective
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import backward, each_step, with_update


def reduced(after, *, reduce="sum", by_ddp=True, nproc=2, **changes):
    """Each step all-reduces the gradient of ``weight``, of norm 2 before, once more."""

    def change(rank, own):
        again = Collective(
            own.time + 0.7, where(60), "all_reduce", None, (4,), "float32", reduce, "weight", norm=2.0
        )
        backwards = own.backwards if by_ddp else (backward(own.time + 0.5),)
        own = replace(own, collectives=(replace(again, **changes),), backwards=backwards)
        return with_update(own, norms={"weight": after})

    return each_step(change, nproc)


def test_a_sum_of_gradients_that_are_averaged_already():
    finding = only_finding("DD211", Source.RUN, reduced(6.0, nproc=3))
    assert finding.headline == (
        "gradients are summed over 3 ranks again after DistributedDataParallel averaged them: 3 times too large"
    )
    assert finding.where == where(60)
    assert finding.evidence[0].text == "step 0: all_reduce(sum) of the gradient of weight"


def test_a_sum_that_is_divided_again_changes_nothing():
    passed("DD211", Source.RUN, reduced(2.0))


def test_an_average_changes_nothing():
    passed("DD211", Source.RUN, reduced(2.0, reduce="avg"))


def test_a_manual_reduction_instead_of_ddps_is_right():
    passed("DD211", Source.RUN, reduced(4.0, by_ddp=False))


def test_a_sum_within_a_smaller_group_is_not_judged():
    passed("DD211", Source.RUN, reduced(6.0, nproc=3, group=(0, 1)))


def summed_loss(**changes):
    def change(rank, own):
        loss = Collective(
            own.time + 0.4, where(61), "all_reduce", None, (), "float32", "sum", requires_grad=True
        )
        backwards = (replace(own.backwards[0], factor=changes.get("factor")),)
        loss = replace(loss, differentiable=changes.get("differentiable", True))
        return replace(own, collectives=(loss,), backwards=backwards)

    return each_step(change)


def test_a_loss_that_is_summed_with_its_gradient():
    finding = only_finding("DD211", Source.RUN, summed_loss())
    assert finding.headline == (
        "the loss is summed over 2 ranks before the backward that averages its gradients: 2 times too large"
    )


@pytest.mark.parametrize("changes", [{"factor": 0.5}, {"differentiable": False}])
def test_a_loss_that_is_averaged_or_reduced_in_place_is_right(changes):
    passed("DD211", Source.RUN, summed_loss(**changes))


def test_nothing_wrapped_is_skipped():
    assert skipped("DD211", Source.RUN, recorded(2, lambda rank, one: replace(one, wrappers=()))).reason
