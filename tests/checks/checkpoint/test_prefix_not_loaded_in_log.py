import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "RuntimeError",
            'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". '
            '\n\tUnexpected key(s) in state_dict: "module.a.weight".',
        ),
        "the names of a checkpoint begin with 'module.', and those of the model do not",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "Error(s) in loading state_dict for DistributedDataParallel:\n\tMissing key(s) in state_dict: "
            '"module.a.weight". \n\tUnexpected key(s) in state_dict: "a.weight".',
        ),
        "the names of a checkpoint do not begin with 'module.', and those of the model do",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD403", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD403"


@pytest.mark.parametrize(
    "text",
    [
        raised(
            0,
            "RuntimeError",
            'Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "a.weight". ',
        ),
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD403", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD403", Source.LOG, log(text + 8 * TRAINING))
