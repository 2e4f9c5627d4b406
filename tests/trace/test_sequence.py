"""What ranks did together with each other, in order."""

from ddpdoctor.recorder.events.training import Collective
from ddpdoctor.trace.sequence import other_gradients
from tests.support.recordings import recording, replace, where


def reduced(*keys):
    """All-reduces of the gradients of these parameters, in this order."""
    return tuple(
        Collective(1.0 + n, where(60), "all_reduce", shape=(4,), dtype="float32", gradient_of=key, number=n)
        for n, key in enumerate(keys)
    )


def ranks(*keys):
    return {rank: replace(recording(rank), collectives=reduced(*own)) for rank, own in enumerate(keys)}


def test_gradients_of_different_parameters_meet():
    row = other_gradients(ranks(("gate", "one", "last"), ("gate", "other", "last")))
    assert row is not None
    assert [point.gradient_of for point in row.values()] == ["one", "other"]


def test_gradients_of_the_same_parameters():
    assert other_gradients(ranks(("gate", "one"), ("gate", "one", "two"))) is None
