import pytest

from ddpdoctor.model import Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised

NAMED = [
    (
        raised(
            1,
            "torch.distributed.DistNetworkError",
            "The client socket has timed out after 600000ms while trying to connect to (127.0.1.1, 29500).",
        ),
        "a rank waited for the store at 127.0.1.1, which is its own node",
    ),
    (
        raised(
            1,
            "TimeoutError",
            "The client socket has timed out after 300s while trying to connect to (0.0.48.57, 29500).",
        ),
        "a rank waited for the store at 0.0.48.57, which is a host's name read as a number",
    ),
    (
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node-7, 29500) cannot be retrieved (gai "
        "error: -2 - Name or service not known).\n"
        + raised(
            1,
            "torch.distributed.DistNetworkError",
            "The client socket has failed to connect to any network address of (node-7, 29500).",
        ),
        "the name 'node-7' did not resolve to an address",
    ),
]


@pytest.mark.parametrize(("text", "headline"), NAMED)
def test_it_is_named(text, headline):
    assert only_finding("DD003", Source.LOG, log(text)).headline == headline
    assert explained(text)[0].code == "DD003"


@pytest.mark.parametrize(
    "text",
    [
        "[W socket.cpp:601] [c10d] The IPv6 network addresses of (node-7, 29500) cannot be retrieved (gai "
        "error: -2 - Name or service not known).\n" + 8 * TRAINING,
    ],
)
def test_what_is_another_matter_is_not(text):
    skipped("DD003", Source.LOG, log(text))


@pytest.mark.parametrize("text", [NAMED[0][0], NAMED[1][0]])
def test_what_training_survived_is_not(text):
    skipped("DD003", Source.LOG, log(text + 8 * TRAINING))
