from ddpdoctor.model import Level, Source
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import replace, where
from tests.support.training import each_step, forward

EVAL_AT = where(12)


def training(evaluating, nproc=2):
    """A job in which each rank's forwards of each step are made by this."""
    return each_step(lambda rank, own: replace(own, forwards=evaluating(rank, own)), nproc)


def one(own, parts, **fields):
    return forward(own.time + 0.2, evaluating=parts, eval_at=EVAL_AT if parts else None, **fields)


def test_a_rank_that_trains_in_eval_mode():
    trace = training(lambda rank, own: (one(own, ("",) if rank == 1 and own.index > 1 else ()),), 3)
    finding = only_finding("DD231", Source.RUN, trace)
    assert finding.level is Level.FAIL
    assert finding.headline.endswith(" trains in eval mode on rank 1 only, from step 2 on")
    assert (finding.ranks, finding.where) == ((1,), EVAL_AT)


def test_a_part_of_the_model_beside_one_that_is_frozen_on_every_rank():
    trace = training(lambda rank, own: (one(own, ("body.norm", "head.drop") if rank else ("body.norm",)),))
    finding = only_finding("DD231", Source.RUN, trace)
    assert finding.headline.startswith("head.drop of ")
    assert finding.ranks == (1,)


def test_a_part_that_is_frozen_on_every_rank():
    passed("DD231", Source.RUN, training(lambda rank, own: (one(own, ("body.norm",)),)))


def test_an_evaluation_with_autograd_before_the_forward_that_learns():
    trace = training(
        lambda rank, own: (*([forward(own.time + 0.1, evaluating=("",))] if rank == 0 else []), one(own, ()))
    )
    passed("DD231", Source.RUN, trace)


def test_a_forward_around_the_wrapper_says_nothing():
    around = training(lambda rank, own: (one(own, ("",) if rank else (), around=True),))
    assert "layer that acts by its mode" in skipped("DD231", Source.RUN, around).reason


def test_a_model_without_a_layer_that_acts_by_its_mode():
    assert (
        "layer that acts"
        in skipped("DD231", Source.RUN, training(lambda rank, own: (one(own, None),))).reason
    )
