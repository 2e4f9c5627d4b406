import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(0, "RuntimeError", "Distributed package doesn't have NCCL built in"),
        "this torch has no backend nccl",
    ),
    (
        raised(0, "RuntimeError", "No backend type associated with device type cpu"),
        "a collective was called on a cpu tensor, and the group has no backend for that device",
    ),
    (
        raised(0, "ValueError", "ProcessGroupNCCL is only supported with GPUs, no GPUs found!"),
        "backend nccl found no GPU",
    ),
    (
        raised(0, "RuntimeError", "Tensors must be CUDA and dense"),
        "a collective was called on a cpu tensor, and the group has no backend for that device",
    ),
    (raised(0, "ValueError", "Invalid backend: 'ncc'"), "this torch has no backend ncc"),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD013", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD013"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD013", Source.LOG, log(text + 8 * TRAINING))
