import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NAMED = [
    (
        "[W reducer.cpp:1303] Warning: find_unused_parameters=True was specified in DDP constructor, but did "
        "not find any unused parameters in the forward pass.\n",
        "find_unused_parameters=True found no unused parameter",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD603", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD603"


def test_an_output_without_the_warning():
    skipped("DD603", Source.LOG, log(TRAINING))
