import pytest

from ddpdoctor.model import Source
from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.recorder.events.updates import Optimizer, OptimizerStep
from ddpdoctor.trace.data import TrainingStep
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, replace, where
from tests.support.training import LINE_OF_UPDATE, with_update

OUTSIDE = "CenterLoss.centers"


def beside(gradient, collectives=(), **fields):
    """An optimizer that also holds a parameter of no wrapper, whose gradient is ``gradient(rank, step)``."""

    def change(rank, one):
        def altered(own):
            taken = own.optimizer_steps[0]
            more = {OUTSIDE: gradient(rank, own.index)}
            weights = {**(taken.before or {}), OUTSIDE: "w"}
            own = replace(own, collectives=collectives)
            return with_update(own, gradients={**taken.gradients, **more}, before=weights, after=weights)

        optimizer = Optimizer(
            0, "SGD", ("weight", "bias", OUTSIDE), (OUTSIDE,), at=where(LINE_OF_UPDATE), **fields
        )
        return replace(one, steps=tuple(map(altered, one.steps)), optimizers=(optimizer,))

    return recorded(2, change)


def test_a_parameter_that_each_rank_trains_by_itself():
    finding = only_finding("DD203", Source.RUN, beside(lambda rank, index: f"{rank} {index}"))
    assert finding.headline == (
        f"the optimizer trains 1 parameter that no DistributedDataParallel synchronises: {OUTSIDE}"
    )
    assert finding.where == where(LINE_OF_UPDATE)
    assert finding.evidence[0].text == f"{OUTSIDE}: its gradient differs between ranks in 4 updates"


def test_the_line_to_change_is_where_the_optimizer_was_made():
    trace = beside(lambda rank, index: f"{rank} {index}", made=where(33))
    finding = only_finding("DD203", Source.RUN, trace)
    assert finding.where == where(33)
    assert finding.evidence[-1].text == f"updated at train.py:{LINE_OF_UPDATE}"


def test_one_that_the_script_averages_is_right():
    passed("DD203", Source.RUN, beside(lambda rank, index: f"{index}"))


def test_one_without_a_gradient_is_right():
    passed("DD203", Source.RUN, beside(lambda rank, index: None))


def test_ranks_that_hold_other_parts_by_design_are_not_compared():
    passed("DD203", Source.RUN, beside(lambda rank, index: f"{rank}", sharded=True))


@pytest.mark.parametrize(
    ("collective", "parts"),
    [
        (Collective(0.1, where(46), "all_to_all_single", shape=(16, 8)), True),
        (Collective(0.1, where(46), "all_reduce", shape=(16, 1), reduce="max"), True),
        (Collective(0.1, where(46), "all_reduce", shape=(1,)), False),
        (Collective(0.1, where(46), "all_gather", shape=(16, 8)), False),
        (Collective(1e9, where(46), "all_reduce", shape=(16, 8)), False),
    ],
)
def test_ranks_that_exchange_activations_hold_parts_by_design(collective, parts):
    trace = beside(lambda rank, index: f"{rank} {index}", collectives=(collective,))
    (passed if parts else only_finding)("DD203", Source.RUN, trace)


def test_parts_that_only_some_ranks_have_are_not_compared():
    def change(rank, one):
        name = f"PartialFC.weight_{rank}"
        steps = tuple(with_update(own, gradients={"weight": "g", name: "h"}) for own in one.steps)
        return replace(one, steps=steps, optimizers=(Optimizer(0, "SGD", ("weight", name), (name,)),))

    passed("DD203", Source.RUN, recorded(2, change))


def test_nothing_wrapped_is_another_disease():
    assert (
        "nothing was wrapped"
        in skipped("DD203", Source.RUN, recorded(2, lambda r, one: replace(one, wrappers=()))).reason
    )


def test_an_optimizer_between_whose_steps_no_wrapped_model_trains():
    def change(rank, one):
        probe = Optimizer(7, "SGD", ("Copy.weight",), outside=("Copy.weight",))
        early = OptimizerStep(
            7, -0.5, where(12), {"Copy.weight": f"{rank}"}, {"Copy.weight": "w"}, {"Copy.weight": f"{rank}"}
        )
        steps = (TrainingStep(0, -0.9, optimizer_steps=(early,)), *one.steps[1:])
        return replace(one, optimizers=(*one.optimizers, probe), steps=steps)

    passed("DD203", Source.RUN, recorded(2, change))
    passed("DD206", Source.RUN, recorded(2, change))
