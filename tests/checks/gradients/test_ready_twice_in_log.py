import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            1,
            "RuntimeError",
            "Expected to mark a variable ready only once.\nParameter at index 604 has been marked as ready twice.",
        ),
        "the gradient of parameter 604 arrived twice in one backward",
    ),
    (
        raised(
            1,
            "RuntimeError",
            "Expected to mark a variable ready only once.\nParameter at index 6 with name block.weight has "
            "been marked as ready twice.",
        ),
        "the gradient of block.weight arrived twice in one backward",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD213", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD213"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD213", Source.LOG, log(text + 8 * TRAINING))
