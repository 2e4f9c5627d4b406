import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised, summary

NAMED = [
    (
        raised(0, "ImportError", "/x/libtorch_cuda.so: undefined symbol: ncclCommRegister"),
        "the libnccl that was loaded has no ncclCommRegister, which torch needs",
    ),
    (
        "NCCL version 2.18.3+cuda12.1\nNCCL version 2.21.5+cuda12.4\n" + summary(1),
        "ranks loaded NCCL 2.18.3 and 2.21.5",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD708", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD708"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD708", Source.LOG, log(text + 8 * TRAINING))
