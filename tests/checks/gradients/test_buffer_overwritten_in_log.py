import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "[torch.cuda.FloatTensor [128]] is at version 7; expected version 6 instead.",
        ),
        "a backward found a tensor of the size of a buffer changed in place",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD215", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD215"


@pytest.mark.parametrize(
    "text",
    [
        raised(
            0,
            "RuntimeError",
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "[torch.FloatTensor [64, 10]] is at version 7",
        ),
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD215", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD215", Source.LOG, log(text + 8 * TRAINING))
