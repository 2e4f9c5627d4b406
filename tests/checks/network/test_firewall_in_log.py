import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "misc/socket.cc:480 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45678> failed : Connection timed out\n",
        "port 45678 of 10.0.0.2 did not answer, after the ranks had met",
    ),
    (
        raised(
            2,
            "RuntimeError",
            "Gloo connectFullMesh failed with [../pair.cc:152] timed out connecting: SO_ERROR: Connection "
            "timed out, remote=[10.0.0.2]:28114 (rank=9, size=16)",
        ),
        "port 28114 of 10.0.0.2 did not answer, after the ranks had met",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD710", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD710"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD710", Source.LOG, log(text + 8 * TRAINING))
