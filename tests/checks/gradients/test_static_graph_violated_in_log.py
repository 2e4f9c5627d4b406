import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            "Your training graph has changed in this iteration, e.g., one parameter is unused in first "
            "iteration, but then got used in the second iteration. this is not compatible with static_graph "
            "set to True.",
        ),
        "the graph of a model wrapped with static_graph=True changed",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD222", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD222"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD222", Source.LOG, log(text + 8 * TRAINING))
