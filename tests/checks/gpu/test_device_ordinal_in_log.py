import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (raised(3, "RuntimeError", "No CUDA GPUs are available"), "a rank sees no GPU"),
    (
        raised(
            5,
            "RuntimeError",
            "CUDA error: invalid device ordinal\nCUDA kernel errors might be asynchronously reported",
        ),
        "a rank asked for a GPU whose number its process does not have",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD802", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD802"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD802", Source.LOG, log(text + 8 * TRAINING))
