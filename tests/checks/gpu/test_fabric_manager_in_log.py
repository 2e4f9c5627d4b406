import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            0,
            "torch.distributed.DistBackendError",
            "NCCL error\nLast error:\nFailed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : "
            "CUDA error 401 'the operation cannot be performed in the present state'",
        ),
        "the NVLink fabric of this machine was not ready",
    ),
    (
        raised(
            0,
            "RuntimeError",
            "Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized",
        ),
        "the NVLink fabric of this machine was not ready",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD804", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD804"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD804", Source.LOG, log(text + 8 * TRAINING))
