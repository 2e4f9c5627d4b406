import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "ValueError",
            "DistributedDataParallel device_ids and output_device arguments only work with "
            "single-device/multiple-device GPU modules or CPU modules, but got device_ids [0]",
        ),
        "DistributedDataParallel's constructor failed: device_ids is given, and the module's parameters lie elsewhere",
    ),
    (
        raised(0, "ValueError", "device_ids can only be None or contain a single element."),
        "DistributedDataParallel's constructor failed: device_ids names several devices",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD224", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD224"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD224", Source.LOG, log(text + 8 * TRAINING))
