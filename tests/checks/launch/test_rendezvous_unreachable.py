import pytest

from ddpdoctor.blame.frames import Failure, Frame
from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.launch import Launch
from ddpdoctor.model import Source
from ddpdoctor.recorder.events.process import GroupEvent
from ddpdoctor.trace import RankTrace, Trace
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped
from tests.support.recordings import recorded, recording, replace, where


def test_an_exported_address_that_does_not_resolve():
    finding = only_finding("DD004", Source.HOST, recorded_host(environ={"MASTER_ADDR": "nosuch.invalid"}))
    assert finding.headline == "MASTER_ADDR 'nosuch.invalid' does not resolve to an address"
    assert "unset MASTER_ADDR" in finding.fix


def test_an_option_wins_over_the_variable():
    launch = Launch(master_addr="localhost", explicit=frozenset({"master_addr"}))
    host = recorded_host(launch=launch, environ={"MASTER_ADDR": "nosuch.invalid"})
    assert passed("DD004", Source.HOST, host).text == "--master-addr 'localhost' resolves to 127.0.0.1"


def test_a_loopback_address_leads_nowhere_from_the_second_node():
    finding = only_finding("DD004", Source.HOST, recorded_host(launch=Launch(nnodes=2, node_rank=1)))
    assert finding.headline == "--master-addr '127.0.0.1' is a loopback address in a job of 2 nodes"


@pytest.mark.parametrize("addresses", [[], ["127.0.0.1"]])
def test_a_loopback_interface_that_is_down(addresses):
    lo = {"name": "lo", "addresses": addresses, "up": False}
    finding = only_finding("DD004", Source.HOST, recorded_host(interfaces=[lo]))
    assert finding.headline == "loopback interface 'lo' is down, so --master-addr '127.0.0.1' is unreachable"
    assert finding.fix.startswith("ip link set lo up")
    elsewhere = Launch(master_addr="10.0.0.1", explicit=frozenset({"master_addr"}))
    passed("DD004", Source.HOST, recorded_host(launch=elsewhere, interfaces=[lo]))


def test_the_ranks_that_did_not_join_are_named():
    ranks = (
        RankRecord(0, joined=True),
        RankRecord(1, failure=Failure("DistStoreError", "timed out after 30 s", "", 1.0)),
    )
    record = GroupRecord(Launch(), ranks, stage=Stage.JOIN, broken="rank 1 did not join")
    finding = only_finding("DD004", Source.GROUP, record)
    assert finding.headline == "rank 1 did not join the process group"
    assert any("timed out" in evidence.text for evidence in finding.evidence)


def test_where_ranks_wait_that_do_not_join_is_shown():
    waits = (
        Frame("run", "/venv/ddpdoctor/worker.py", 3),
        Frame("init_process_group", "/venv/torch/c10d.py", 9),
    )
    ranks = (RankRecord(0, 41, stack=waits), RankRecord(1, 42, stack=waits), RankRecord(2))
    record = GroupRecord(Launch(), ranks, stage=Stage.JOIN, broken="the group stopped answering")
    silent, stacks = only_finding("DD004", Source.GROUP, record).evidence
    assert (silent.text, silent.ranks) == ("its process has not begun to run", (2,))
    assert stacks.text.splitlines()[1:] == ["ranks 0-1:", f"  {waits[0]}", f"  {waits[1]}"]


def test_a_group_that_met_passes_and_one_without_torch_is_skipped():
    assert "ranks met" in passed("DD004", Source.GROUP, GroupRecord(Launch())).text
    broken = GroupRecord(Launch(), stage=Stage.IMPORT, broken="torch was not imported")
    assert skipped("DD004", Source.GROUP, broken).reason == "torch was not imported"


def test_a_disk_that_is_full_is_another_disease():
    full = GroupRecord(Launch(), stage=Stage.JOIN, broken="rank 0 did not join", unwritable=True)
    assert skipped("DD004", Source.GROUP, full).reason == "rank 0 did not join"


FRAMES = {"rendezvous": "/venv/torch/distributed/rendezvous.py", "mesh": "/venv/torch/distributed/c10d.py"}


def stuck(world_size=2, addresses=("10.0.0.9",), file="rendezvous", **changes):
    """Every rank is in init_process_group until the run is stopped."""

    def rank(number):
        told = {"MASTER_ADDR": addresses[number % len(addresses)], "MASTER_PORT": "8888"}
        joining = GroupEvent(
            "joining", 1.0, where(20), arguments={"world_size": world_size, "rank": number}, environ=told
        )
        stack = (Frame("main", "/jobs/train.py", 20), Frame("_create_c10d_store", FRAMES[file], 199))
        return RankTrace(number, stack=stack, recording=replace(recording(number), groups=(joining,)))

    return Trace((rank(0), rank(1)), **{"status": -15, "timed_out": True, "seconds": 17.0, **changes})


def test_an_address_that_no_rank_reaches():
    finding = only_finding("DD004", Source.RUN, stuck())
    assert finding.headline == "ranks 0-1 started, and none of them reaches the store at '10.0.0.9' port 8888"
    assert (finding.ranks, finding.where) == ((0, 1), where(20))


def test_addresses_that_differ():
    finding = only_finding("DD004", Source.RUN, stuck(addresses=("10.0.0.9", "10.0.0.8")))
    assert finding.headline == "ranks 0-1 connect to 2 different addresses, and none reaches the store"
    assert [one.text for one in finding.evidence] == ["'10.0.0.9' port 8888", "'10.0.0.8' port 8888"]


@pytest.mark.parametrize(
    "other",
    [{"world_size": 3}, {"file": "mesh"}, {"timed_out": False, "seconds": 4.0}, {"out_of_time": True}],
)
def test_ranks_that_wait_for_another_reason(other):
    skipped("DD004", Source.RUN, stuck(**other))


def test_ranks_that_met():
    assert passed("DD004", Source.RUN, recorded()).text == "ranks 0-1 met"
