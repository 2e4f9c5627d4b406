import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "PytorchStreamReader failed reading zip archive: failed finding central directory",
        ),
        "a checkpoint is not complete, so it cannot be read",
    ),
    (raised(0, "EOFError", "Ran out of input"), "a checkpoint is not complete, so it cannot be read"),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD404", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD404"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD404", Source.LOG, log(text + 8 * TRAINING))
