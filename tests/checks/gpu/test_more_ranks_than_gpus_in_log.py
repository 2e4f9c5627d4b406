import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL + "init.cc:738 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n",
        "ranks 0-1 used the same GPU, 1000",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD801", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD801"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD801", Source.LOG, log(text + 8 * TRAINING))
