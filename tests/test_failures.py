"""A message means the same to a recorded run and to a job's output."""

import pytest

from ddpdoctor.blame.failure import Failure
from ddpdoctor.logs.secondary_errors import own_causes
from tests.support.logs import log, raised

REQUESTS = "/usr/lib/python3/dist-packages/requests/adapters.py"
OF_VICTIMS = [
    ("torch.distributed.DistNetworkError", "failed to recv, got 0 bytes"),
    ("RuntimeError", "[pair.cc:534] Connection closed by peer [10.0.0.1]:4711"),
    ("RuntimeError", "[pair.cc:144] connect [127.0.0.1]:4711: Connection refused"),
    ("RuntimeError", "[pair.cc:537] Timed out waiting 4000ms for recv operation to complete"),
    ("RuntimeError", "NCCL error: remote process has exited or there was a network error"),
    ("torch.distributed.DistBackendError", "NCCL error: ncclRemoteError: a call failed"),
    ("ray.exceptions.ActorDiedError", "The actor died unexpectedly before finishing this task"),
    ("RuntimeError", "Rank 0 successfully reached monitoredBarrier, but received errors while waiting"),
]
OF_CAUSES = [
    ("ConnectionRefusedError", "[Errno 111] Connection refused"),
    ("KeyError", "'peer'"),
    ("ValueError", "the process at /data/remote has no samples"),
    ("TimeoutError", "the database did not answer"),
    ("RuntimeError", "expected 0 bytes, got 4"),
]


def is_a_cause_in_output(kind: str, message: str, file: str = "/home/user/train.py") -> bool:
    return bool(own_causes(log(raised(1, kind, message, file))))


def is_a_cause_in_a_run(kind: str, message: str, file: str = "/home/user/train.py") -> bool:
    traceback = f'Traceback (most recent call last):\n  File "{file}", line 12, in main\n    step()\n{kind}: {message}'
    return not Failure(kind, message, traceback, 1.0).of_a_victim


@pytest.mark.parametrize("is_a_cause", [is_a_cause_in_output, is_a_cause_in_a_run])
class TestWherever:
    @pytest.mark.parametrize(("kind", "message"), OF_VICTIMS)
    def test_what_a_victim_says_is_no_cause(self, is_a_cause, kind, message):
        assert not is_a_cause(kind, message)

    @pytest.mark.parametrize(("kind", "message"), OF_CAUSES)
    def test_what_names_no_peer_is_a_cause(self, is_a_cause, kind, message):
        assert is_a_cause(kind, message)

    def test_a_lost_connection_to_a_service_is_a_cause(self, is_a_cause):
        lost = ("ConnectionError", "('Connection aborted.', RemoteDisconnected('closed without response'))")
        assert is_a_cause(*lost, file=REQUESTS)
        assert not is_a_cause(*lost)

    def test_a_key_of_the_store_that_the_script_asked_for_is_a_cause(self, is_a_cause):
        waited = ("torch.distributed.DistStoreError", "wait timeout after 4000ms, keys: /best")
        assert is_a_cause(*waited)
        assert not is_a_cause(
            *waited, file="/venv/lib/python3.11/site-packages/torch/distributed/rendezvous.py"
        )
