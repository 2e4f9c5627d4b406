import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL
        + "misc/shmutils.cc:72 NCCL WARN Error: failed to open /dev/shm/nccl-xHLn4z, error: Permission denied\n",
        "NCCL could not make or attach a shared memory segment",
    ),
    (
        NCCL
        + "misc/shmutils.cc:87 NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-2D\n",
        "NCCL could not make or attach a shared memory segment",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD707", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD707"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD707", Source.LOG, log(text + 8 * TRAINING))
