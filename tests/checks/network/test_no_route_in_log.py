import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "NCCL WARN Connect to fe80::ec4:7aff:fe0c:1b2c%enp1s0<44321> failed : Network is unreachable\n",
        "a rank gave out the link-local address fe80::ec4:7aff:fe0c:1b2c%enp1s0",
    ),
    (
        NCCL
        + "misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 10.9.0.2<44321> failed : No route to host\n",
        "there was no route to 10.9.0.2",
    ),
    (
        NCCL + "include/socket.h:403 NCCL WARN Connect to 169.254.3.1<44321> failed : Connection refused\n",
        "a rank gave out the link-local address 169.254.3.1",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD709", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD709"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD709", Source.LOG, log(text + 8 * TRAINING))
