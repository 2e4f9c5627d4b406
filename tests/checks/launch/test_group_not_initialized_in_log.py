import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "ValueError",
            "Default process group has not been initialized, please make sure to call init_process_group.",
        ),
        "the process group was used before it was initialized",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD021", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD021"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD021", Source.LOG, log(text + 8 * TRAINING))
