import pytest

from ddpdoctor.recorder.events.updates import Exact
from ddpdoctor.trace.hook_gradients import in_words, proof


@pytest.mark.parametrize(
    ("error", "dtypes", "agrees"),
    [
        (1e-7, ("float32",), True),
        (0.03, ("float32",), False),
        (0.03, ("bfloat16",), True),
        (0.03, ("bfloat16", "float32"), True),
        (1.0, ("float16",), False),
        (1e-5, ("float64",), False),
    ],
)
def test_gradients_agree_as_far_as_their_dtype_can_tell(error, dtypes, agrees):
    assert Exact(error=error, dtypes=dtypes).agrees is agrees


def test_what_was_not_compared_neither_agrees_nor_proves():
    refused = Exact(refused="several DataLoaders feed its first update")
    assert not refused.agrees
    assert proof(refused) == proof(None) == ()


def test_the_comparison_in_words():
    exact = Exact(scale=2.0, error=1.0, cosine=0.99999)
    assert in_words(exact) == (
        "the gradient of the first update is 2 times that of one process on the same samples, with a relative error of "
        "1 and a cosine of 1.0000"
    )
