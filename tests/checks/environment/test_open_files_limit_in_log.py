import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(0, "OSError", "[Errno 24] Too many open files: '/data/x'"),
        "a process ran out of file descriptors",
    ),
    (raised(0, "RuntimeError", "received 0 items of ancdata"), "a process ran out of file descriptors"),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD015", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD015"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD015", Source.LOG, log(text + 8 * TRAINING))
