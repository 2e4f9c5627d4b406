import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            1,
            "RuntimeError",
            "DDP expects same model across all ranks, but Rank 1 has 4 params, while rank 0 has inconsistent 6 "
            "params.",
        ),
        "DistributedDataParallel refused a model that is not the same on every rank",
    ),
    (
        raised(
            1,
            "RuntimeError",
            "[1]: params[0] in this process with sizes [20, 10] appears not to match sizes of the same param "
            "in process 0.",
        ),
        "DistributedDataParallel refused a model that is not the same on every rank",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD214", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD214"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD214", Source.LOG, log(text + 8 * TRAINING))
