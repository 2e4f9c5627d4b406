import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "Attempting to deserialize object on CUDA device 3 but torch.cuda.device_count() is 1.",
        ),
        "a checkpoint was saved from CUDA device 3, which is not here",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD406", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD406"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD406", Source.LOG, log(text + 8 * TRAINING))
