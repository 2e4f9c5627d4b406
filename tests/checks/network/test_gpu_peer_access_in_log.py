import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log

NCCL = "node-a:100:201 [0] "
NAMED = [
    (
        NCCL + "allocator.cc:79 NCCL WARN Cuda failure 711 'peer mapping resources exhausted'\n",
        "a GPU had no peer mapping left for one more GPU",
    ),
    (
        NCCL
        + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        + NCCL
        + "NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE\n(it hangs here)\n",
        "the GPUs were connected by peer access, and the first collective did not end",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD706", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD706"


@pytest.mark.parametrize(
    "text",
    [
        NCCL
        + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        + NCCL
        + "NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE\n",
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD706", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD706", Source.LOG, log(text + 8 * TRAINING))
