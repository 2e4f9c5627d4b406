"""The hosts that Ray Train lost, from the exception of its program."""

import pytest

from ddpdoctor.job.job_folder import hosts_that_ray_lost
from ddpdoctor.recorder.events.process import Raised
from ddpdoctor.trace import LostHost
from tests.support.recordings import recording

WORKER = """\
[Rank {rank} Error Snippet]:
A worker health check failed.
Worker info: Worker(
  actor=Actor(RayTrainWorker, 06028261),
  metadata=ActorMetadata(
    hostname='{host}',
    pid=5901,
  ),
)
{end}
"""
UNREACHABLE = (
    "The actor 06028261 is unavailable: RpcError: failed to connect to all addresses; Connection refused"
)
RESET = (
    "The actor 06028261 is unavailable: RpcError: RPC error: recvmsg:Connection reset by peer rpc_code: 14"
)
NODE_DIED = "The actor died because its node has died. Node Id: ec0121e3"
PROCESS_DIED = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"


def lost(*workers: tuple[int, str, str]) -> tuple[LostHost, ...]:
    snippets = (WORKER.format(rank=rank, host=host, end=end) for rank, host, end in workers)
    message = f"Training failed due to worker errors:\n{''.join(snippets)}"
    program = recording(0, raised=Raised("ray.train.WorkerGroupError", message, 5.0))
    return hosts_that_ray_lost([recording(0), program])


@pytest.mark.parametrize("end", [UNREACHABLE, RESET, NODE_DIED])
def test_a_host_that_ray_does_not_reach_is_lost_with_its_ranks(end: str) -> None:
    (host,) = lost((0, "node0", "RuntimeError: closed by peer"), (1, "node1", end), (2, "node1", end))
    assert (host.host, host.ranks) == ("node1", (1, 2))


def test_a_host_stays_where_a_worker_dies() -> None:
    assert lost((1, "node1", PROCESS_DIED)) == ()
