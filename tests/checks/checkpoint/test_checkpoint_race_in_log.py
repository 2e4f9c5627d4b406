import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE\n"
        + raised(1, "FileNotFoundError", "[Errno 2] No such file or directory: 'out/last.pt'"),
        "rank 1 did not find a checkpoint, or half of one, and rank 0 did",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD401", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD401"


@pytest.mark.parametrize(
    "text",
    [
        raised(0, "FileNotFoundError", "[Errno 2] No such file or directory: 'out/last.pt'")
        + raised(1, "FileNotFoundError", "[Errno 2] No such file or directory: 'out/last.pt'"),
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD401", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD401", Source.LOG, log(text + 8 * TRAINING))
