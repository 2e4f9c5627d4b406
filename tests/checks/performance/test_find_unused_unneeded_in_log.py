from ddpdoctor.model import Source
from tests.support.judging import skipped
from tests.support.logs import TRAINING, log, names

NAMED = [
    (
        "[W reducer.cpp:1303] Warning: find_unused_parameters=True was specified in DDP constructor, but did "
        "not find any unused parameters in the forward pass.\n",
        "find_unused_parameters=True found no unused parameter",
    ),
]

test_it_is_named = names("DD603", NAMED)


def test_an_output_without_the_warning():
    skipped("DD603", Source.LOG, log(TRAINING))
