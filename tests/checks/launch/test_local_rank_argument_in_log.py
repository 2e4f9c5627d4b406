import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NAMED = [
    (
        "train.py: error: unrecognized arguments: --local-rank=0\n",
        "the script did not know the option --local-rank that the launcher gave it",
    ),
    (
        "train.py: error: unrecognized arguments: --foo 1 --local_rank=3\n",
        "the script did not know the option --local_rank that the launcher gave it",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD007", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD007"


@pytest.mark.parametrize(
    "text",
    [
        "train.py: error: unrecognized arguments: --lr 3\n",
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD007", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD007", Source.LOG, log(text + 8 * TRAINING))
