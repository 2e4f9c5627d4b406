import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(0, "ValueError", "SyncBatchNorm expected input tensor to be on GPU"),
        "SyncBatchNorm was given input that it does not work on",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD221", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD221"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD221", Source.LOG, log(text + 8 * TRAINING))
