import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            1,
            "RuntimeError",
            "Expected to have finished reduction in the prior iteration before starting a new one. This error "
            "indicates that your module has parameters that were not used.\nParameter indices which did not "
            "receive grad for rank 1: 160 161\n In addition, you can set",
        ),
        "rank 1 did not produce gradients for parameters 160 161",
    ),
    (
        raised(
            1,
            "RuntimeError",
            "Expected to have finished reduction in the prior iteration before starting a new one.\nParameters "
            "which did not receive grad for rank 1: head.weight, head.bias\nParameter indices which did not "
            "receive grad for rank 1: 2 3",
        ),
        "rank 1 did not produce gradients for parameters head.weight, head.bias",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD204", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD204"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD204", Source.LOG, log(text + 8 * TRAINING))
