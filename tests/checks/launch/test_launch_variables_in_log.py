import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "ValueError",
            "Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR "
            "expected, but not set",
        ),
        "MASTER_ADDR was not set in the environment of the script",
    ),
    (raised(0, "KeyError", "'LOCAL_RANK'"), "LOCAL_RANK was not set in the environment of the script"),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD001", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD001"


@pytest.mark.parametrize(
    "text",
    [
        raised(0, "KeyError", "'label'"),
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD001", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD001", Source.LOG, log(text + 8 * TRAINING))
