from dataclasses import replace

from ddpdoctor.model import Source
from ddpdoctor.trace.training import Optimizer
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, where
from tests.support.training import LINE_OF_UPDATE, with_update

OUTSIDE = "CenterLoss.centers"


def beside(gradient, **fields):
    """An optimizer that also holds a parameter of no wrapper, whose gradient is ``gradient(rank, step)``."""

    def change(rank, one):
        def altered(own):
            taken = own.optimizer_steps[0]
            more = {OUTSIDE: gradient(rank, own.index)}
            weights = {**(taken.before or {}), OUTSIDE: "w"}
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


def test_one_that_the_script_averages_is_right():
    passed("DD203", Source.RUN, beside(lambda rank, index: f"{index}"))


def test_one_without_a_gradient_is_right():
    passed("DD203", Source.RUN, beside(lambda rank, index: None))


def test_ranks_that_hold_other_parts_by_design_are_not_compared():
    passed("DD203", Source.RUN, beside(lambda rank, index: f"{rank}", sharded=True))


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
