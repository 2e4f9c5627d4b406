import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised, summary

NAMED = [
    (
        raised(0, "RuntimeError", "CUDA error: uncorrectable ECC error encountered"),
        "a GPU reported a hardware error: uncorrectable ECC error encountered",
    ),
    (
        "[ 1.2] NVRM: Xid (PCI:0000:4f:00): 79, pid=1, GPU has fallen off the bus.\n" + summary(1),
        "a GPU reported a hardware error: NVRM: Xid (PCI:0000:4f:00): 79",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD805", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD805"


@pytest.mark.parametrize("text", [NAMED[0][0]])
def test_what_training_survived_is_not(text):
    skipped("DD805", Source.LOG, log(text + 8 * TRAINING))
