import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        "NET/IB : Got completion from peer 10.0.0.2<51844> with error 12, opcode 0, len 0, vendor err 129\n",
        "InfiniBand or RoCE adapters got no answer from each other, and nothing had passed before",
    ),
    (
        NCCL + "NCCL WARN NET/IB : Got completion from peer 10.0.0.2<51844> with status=12 opcode=129\n",
        "InfiniBand or RoCE adapters got no answer from each other, and nothing had passed before",
    ),
    (
        NCCL + "misc/ibvwrap.cc:302 NCCL WARN Call to ibv_modify_qp failed with error Connection timed out\n",
        "InfiniBand or RoCE adapters got no answer from each other, and nothing had passed before",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD703", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD703"


@pytest.mark.parametrize(
    "text",
    [
        20 * TRAINING
        + "NET/IB : Got completion from peer 10.0.0.2<51844> with error 12, opcode 0, len 0, vendor err 129\n",
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD703", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD703", Source.LOG, log(text + 8 * TRAINING))
