import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot allocate memory\n",
        "InfiniBand could not register memory: the limit on locked memory is too low",
    ),
    (
        NCCL
        + "misc/ibvwrap.cc:160 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory errno 12\n",
        "InfiniBand could not register memory: the limit on locked memory is too low",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD704", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD704"


@pytest.mark.parametrize(
    "text",
    [
        NCCL + "misc/ibvwrap.cc:160 NCCL WARN Call to ibv_create_qp failed\n",
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD704", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD704", Source.LOG, log(text + 8 * TRAINING))
