import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        20 * TRAINING
        + "NET/IB : Got completion from peer 10.0.0.2<51844> with error 12, opcode 0, len 0, vendor err 129\n",
        "an InfiniBand transfer ended with status 12, retries used up: the other side did not answer",
    ),
    (
        NCCL + "transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n",
        "an InfiniBand port reported 'port error'",
    ),
    (
        "NET/IB : Got completion from peer 10.0.0.2<51844> with error 5, opcode 0, len 0, vendor err 249\n",
        "an InfiniBand transfer ended with status 5, a flush after another error",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD705", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD705"


@pytest.mark.parametrize(
    "text",
    [
        NCCL + "transport/net_ib.cc:93 NCCL WARN NET/IB : mlx5_0:1 Got async event : GID table change\n",
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD705", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[1][0], NAMED[2][0]])
def test_what_training_survived_is_not(text):
    skipped("DD705", Source.LOG, log(text + 8 * TRAINING))
