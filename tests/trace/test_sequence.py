"""What ranks did together with each other, in order."""

from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.recorder.events.updates import Optimizer
from ddpdoctor.trace.sequence import other_gradients
from tests.support.recordings import recording, replace, where


def reduced(*keys):
    """All-reduces of the gradients of these parameters, in this order."""
    return tuple(
        Collective(1.0 + n, where(60), "all_reduce", shape=(4,), dtype="float32", gradient_of=key, number=n)
        for n, key in enumerate(keys)
    )


def ranks(*keys, known=None):
    """Ranks that reduce these gradients, with optimizers of these parameters, or of all."""
    optimizers = known or [{key for own in keys for key in own}] * len(keys)
    return {
        rank: replace(
            recording(rank),
            collectives=reduced(*own),
            optimizers=(Optimizer(0, "SGD", tuple(optimizers[rank])),),
        )
        for rank, own in enumerate(keys)
    }


def test_gradients_of_different_parameters_meet():
    row = other_gradients(ranks(("gate", "one", "last"), ("gate", "other", "last")))
    assert row is not None
    assert [point.gradient_of for point in row.values()] == ["one", "other"]


def test_gradients_of_the_same_parameters():
    assert other_gradients(ranks(("gate", "one"), ("gate", "one", "two"))) is None


def test_parameters_that_each_rank_knows_by_names_of_its_own():
    keys = ("gate", "one"), ("module.gate", "module.one")
    assert other_gradients(ranks(*keys, known=keys)) is None


def test_a_record_that_does_not_show_all_collectives():
    records = ranks(("gate", "one"), ("gate", "other"))
    records[1] = replace(records[1], collectives=records[1].collectives[1:])
    assert other_gradients(records) is None
