import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a gradient.",
        ),
        "a module without a parameter to train was wrapped in DistributedDataParallel",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD223", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD223"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD223", Source.LOG, log(text + 8 * TRAINING))
