import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            2,
            "RuntimeError",
            "Timed out initializing process group in store based barrier on rank: 2, for key: "
            "store_based_barrier_key:1 (world_size=4, worker_count=9, timeout=0:30:00)",
        ),
        "9 ranks joined a store made for 4",
    ),
    (
        raised(0, "torch.distributed.elastic.rendezvous.api.RendezvousClosedError", ""),
        "the rendezvous was closed before this job joined it",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD011", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD011"


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD011", Source.LOG, log(text + 8 * TRAINING))
