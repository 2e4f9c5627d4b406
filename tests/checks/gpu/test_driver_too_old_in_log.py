import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "init.cc:1270 NCCL WARN Cuda failure 'CUDA driver version is insufficient for CUDA runtime version'\n",
        "the NVIDIA driver is too old for the CUDA that was loaded",
    ),
    (
        raised(0, "RuntimeError", "The NVIDIA driver on your system is too old (found version 11040)."),
        "the NVIDIA driver is too old for the CUDA that was loaded",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD808", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD808"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD808", Source.LOG, log(text + 8 * TRAINING))
