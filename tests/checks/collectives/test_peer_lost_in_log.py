import pytest

from ddpdoctor.model import Role, Source
from tests.support.judging import only_finding, skipped
from tests.support.logs import TRAINING, explained, log, raised, summary
from tests.support.waits import stopped

GLOO = "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:33177"
BARRIER = "Rank 1 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0."
NCCL = (
    "NCCL error\nncclRemoteError: A call failed possibly due to a network error or a remote process exiting."
)


@pytest.mark.parametrize(
    ("text", "headline"),
    [
        (
            raised(1, "RuntimeError", GLOO),
            "the connection to the peer at 10.0.0.7 was lost; the output contains rank 1 only",
        ),
        (
            raised(1, "RuntimeError", "DataLoader worker (pid(s) 412) exited unexpectedly"),
            "a DataLoader worker of rank 1 ended without an error message",
        ),
        (
            raised(1, "RuntimeError", BARRIER),
            "the connection to rank 0 was lost; the output contains rank 1 only",
        ),
        (
            raised(1, "torch.distributed.DistBackendError", NCCL)
            + raised(3, "RuntimeError", "x: Broken pipe"),
            "the connection to a peer was lost; the output contains ranks 1, 3 only",
        ),
    ],
)
def test_the_survivors_are_not_blamed(text, headline):
    finding = only_finding("DD311", Source.LOG, log(text + summary(1)))
    assert (finding.headline, finding.sighting.role) == (headline, Role.MESSENGER)
    assert [one.code for one in explained(text + summary(1))] == ["DD311"]


def test_a_killed_rank_outranks_what_its_peers_say():
    assert [one.code for one in explained(raised(1, "RuntimeError", GLOO) + summary(0, -11))] == ["DD012"]


def test_a_connection_that_was_made_again():
    skipped("DD311", Source.LOG, log("wandb: Connection reset by peer, retrying\n" + 8 * TRAINING))


def test_a_rank_that_ended_without_an_exception_is_the_one_to_look_at():
    text = raised(0, "RuntimeError", GLOO) + raised(1, "RuntimeError", GLOO) + stopped(10, 11) + summary(2, 3)
    (finding,) = explained(text)
    assert finding.headline == (
        "rank 2 ended with exit status 3 without an exception in this output, and ranks 0-1 lost the connection to it"
    )
    assert (finding.code, finding.ranks, finding.where) == ("DD311", (2,), None)


def test_a_rank_that_the_launcher_stopped_is_not():
    text = raised(0, "RuntimeError", GLOO) + stopped(100) + summary(1)
    assert (
        explained(text)[0].headline
        == "the connection to the peer at 10.0.0.7 was lost; the output contains rank 0 only"
    )


def test_a_rank_that_was_stopped_in_an_output_without_its_beginning_is_not():
    (finding,) = explained(summary(0, -15, 7) + summary(1, 1, 8))
    assert (finding.code, finding.ranks) == ("DD312", (1,))


def test_the_abort_of_a_survivor_by_its_watchdog_is_no_cause():
    text = (
        "[rank4]:[E302 12:00:01.1 ProcessGroupNCCL.cpp:1895] [PG ID 0 PG GUID 0(default_pg) Rank 4] Process group "
        "watchdog thread terminated with exception: NCCL error: remote process exited or there was a network error\n"
        "Last error:\nsocketProgress: Connection closed by remote peer node-b<43112>\n"
    )
    (finding,) = explained(text + summary(4, -6))
    assert (finding.code, finding.ranks) == ("DD311", ())
    assert explained("step 1\n" + summary(4, -6))[0].code == "DD012"


def test_an_actor_of_ray_that_died_is_a_peer():
    ray = "/opt/env/lib/python3.11/site-packages/ray/_private/worker.py"
    text = raised(0, "ray.exceptions.ActorDiedError", "The actor died unexpectedly.", file=ray)
    assert explained(text + raised(2, "KeyError", "'x'"))[0].ranks == (2,)
    assert [finding.code for finding in explained(text)] == ["DD311"]
