"""What the hosts of a job tell of each other, as the checks of several families read it."""

import pytest

from ddpdoctor.blame.frames import Failure
from ddpdoctor.judge import Verdict, merge
from ddpdoctor.model import Level, Source
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.trace import LostHost, RankTrace, Trace
from tests.support.judging import ask, check, only_finding, passed, skipped
from tests.support.nodes import NOT_JOINED, hosts, link, node
from tests.support.recordings import recording, where
from tests.support.recordings import replace as changed

TWO = (node(0), node(1))
THREE = (*TWO, node(2))


# -- who is there -----------------------------------------------------------------------------------------


def test_a_node_that_never_came_is_named_with_its_ranks() -> None:
    record = hosts(TWO, nnodes=3, broken="node 2 did not join", absent=(2,))
    finding = only_finding("DD004", Source.GROUP, record)
    assert finding.headline == "node 2 did not join (ranks 4-5)"
    assert [evidence.text for evidence in finding.evidence] == [
        "node0 joined, node 0",
        "node1 joined, node 1",
    ]
    assert "nc -vz 10.0.0.1 29500" in finding.fix


def test_a_host_that_was_lost_in_the_group() -> None:
    finding = only_finding("DD315", Source.GROUP, hosts(TWO, lost={1: "its connection closed"}))
    assert finding.headline == "host node1 (ranks 2-3) was lost: its connection closed"
    assert finding.ranks == (2, 3)
    assert passed("DD315", Source.GROUP, hosts(TWO)).text == "all 2 hosts stayed until the end"
    skipped("DD315", Source.GROUP, hosts([node(0)]))


def test_a_host_that_was_lost_in_the_run() -> None:
    lost = LostHost("node1", (2, 3), "it has not answered for 9 s")
    trace = Trace((RankTrace(0), RankTrace(1)), status=1, lost=(lost,))
    assert trace.broken == "node1 was lost"
    finding = only_finding("DD315", Source.RUN, trace)
    assert finding.headline == "host node1 (ranks 2-3) was lost: it has not answered for 9 s"


def test_a_host_without_which_the_job_restarted_is_a_remark() -> None:
    lost = LostHost("node2", (4, 5), "its connection closed")
    ranks = tuple(RankTrace(rank, finished=True, recording=recording(rank)) for rank in range(4))
    trace = Trace(ranks, lost=(lost,), world_size=4)
    assert trace.broken is None
    finding = only_finding("DD315", Source.RUN, trace)
    assert finding.level is Level.INFO
    assert (
        finding.headline
        == "host node2 (ranks 4-5) was lost, and the job restarted without it: its connection closed"
    )
    assert "with 4 ranks" in finding.why
    there = changed(trace, lost=(changed(lost, host=recording(0).host),))
    assert there.broken == f"{recording(0).host} was lost"
    assert only_finding("DD315", Source.RUN, there).level is Level.FAIL
    six = changed(trace, world_size=6)
    assert six.broken == "node2 was lost"
    failed = only_finding("DD315", Source.RUN, six)
    assert failed.level is Level.FAIL
    assert "torchrun starts an elastic job anew" in failed.why


# -- what differs -----------------------------------------------------------------------------------------


def test_hosts_that_are_alike() -> None:
    files = {"train.py": "3f0a"}
    alike = (node(0, files=files), node(1, files=files))
    assert (
        passed("DD022", Source.GROUP, hosts(alike)).text
        == "2 hosts have the same settings and the same train.py"
    )
    skipped("DD022", Source.GROUP, hosts([node(0)]))


def test_a_script_that_differs() -> None:
    nodes = [node(number, files={"train.py": "91c4" if number == 2 else "3f0a"}) for number in range(3)]
    finding = only_finding("DD022", Source.GROUP, hosts(nodes))
    assert finding.headline == "'train.py' differs between hosts: '3f0a' on node0, node1; '91c4' on node2"
    assert finding.level is Level.WARN


def test_a_path_that_one_host_alone_has_is_no_difference() -> None:
    passed("DD022", Source.GROUP, hosts([node(0, files={"/scratch/a": "3f0a"}), node(1)]))


@pytest.mark.parametrize(
    ("name", "differs"),
    [("NCCL_ALGO", True), ("NCCL_SOCKET_IFNAME", False), ("NCCL_IB_HCA", False), ("NCCL_TOPO_FILE", False)],
)
def test_settings_that_differ(name: str, differs: bool) -> None:
    record = hosts([node(0, variables={name: "Ring"}), node(1)])
    if differs:
        headline = only_finding("DD022", Source.GROUP, record).headline
        assert headline == f"{name} differs between hosts: 'Ring' on node0; not set on node1"
    else:
        passed("DD022", Source.GROUP, record)


def test_gpus_that_differ() -> None:
    finding = only_finding("DD022", Source.GROUP, hosts([node(0, gpus=8), node(1, gpus=7)]))
    assert finding.headline == "the number of visible GPUs differs between hosts: 8 on node0; 7 on node1"


def test_numa_nodes_that_differ_are_information_and_unknown_ones_are_nothing() -> None:
    finding = only_finding("DD022", Source.GROUP, hosts([node(0, numa_nodes=2), node(1, numa_nodes=8)]))
    assert finding.level is Level.INFO
    assert finding.headline == "the number of NUMA nodes differs between hosts: 2 on node0; 8 on node1"
    assert "or their BIOS or virtual machine settings differ" in finding.why
    passed("DD022", Source.GROUP, hosts([node(0, numa_nodes=2), node(1)]))


def test_versions_of_hosts_whose_ranks_did_not_meet() -> None:
    older = node(1, versions={"torch": "2.9.1", "Python": "3.11.7"})
    finding = only_finding("DD014", Source.GROUP, hosts([node(0), older], **NOT_JOINED))
    assert finding.headline == "torch differs between ranks: 2.13.0 on ranks 0-1, 2.9.1 on ranks 2-3"
    skipped("DD014", Source.GROUP, hosts(TWO, **NOT_JOINED))


@pytest.mark.parametrize(
    ("skew", "headline"),
    [(90.0, "node1 is 90 s ahead of node0"), (-7.0, "node1 is 7 s behind node0"), (-2.0, None)],
)
def test_clocks(skew: float, headline: str | None) -> None:
    record = hosts([node(0), node(1, skew=skew)])
    if headline:
        finding = only_finding("DD023", Source.GROUP, record)
        assert finding.headline == f"the clocks of hosts differ: {headline}"
        assert finding.ranks == (2, 3)
    else:
        passed("DD023", Source.GROUP, record)


def test_packets_of_another_size() -> None:
    record = hosts([node(0, mtus={"eth0": 9000}), node(1)])
    finding = only_finding("DD711", Source.GROUP, record)
    assert finding.headline == "the MTU differs between hosts: 1500 on node1; 9000 on node0"
    assert passed("DD711", Source.GROUP, hosts(TWO)).text == "the interfaces of 2 hosts have an MTU of 1500"
    skipped("DD711", Source.GROUP, hosts([node(0), node(1, mtus={})]))


# -- how they reach each other ----------------------------------------------------------------------------


def test_ports_for_data_that_do_not_answer_where_the_ranks_did_not_meet() -> None:
    links = (link(0, 1), link(1, 0, error="no answer"))
    finding = only_finding("DD710", Source.GROUP, hosts(TWO, links=links, **NOT_JOINED))
    assert (
        finding.headline == "node1 cannot reach node0 on the ports for data, although the master port is open"
    )
    assert finding.evidence[0].text == "node1 to node0: port 40000 of 10.0.0.1: no answer"
    assert finding.level is Level.FAIL


def test_ports_that_the_ranks_did_not_need_are_information() -> None:
    links = (link(0, 1), link(1, 0, error="no answer"))
    assert only_finding("DD710", Source.GROUP, hosts(TWO, links=links)).level is Level.INFO


def test_a_route_that_is_not_there() -> None:
    links = (link(0, 1, error="No route to host"), link(1, 0))
    finding = only_finding("DD709", Source.GROUP, hosts(TWO, links=links, **NOT_JOINED))
    assert finding.headline == "a connection fails from node0 to node1 at 10.0.0.2: No route to host"
    passed("DD710", Source.GROUP, hosts(TWO, links=links, **NOT_JOINED))


def test_connections_that_answer() -> None:
    record = hosts(TWO, links=(link(0, 1), link(1, 0)))
    assert passed("DD710", Source.GROUP, record).text == "2 connections between the hosts answered"
    passed("DD709", Source.GROUP, record)
    skipped("DD710", Source.GROUP, hosts([node(0)]))


def all_links(**slow: float) -> tuple[object, ...]:
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    return tuple(link(a, b, **(slow if (a, b) == (1, 2) else {})) for a, b in pairs)


@pytest.mark.parametrize("slow", [{"rate": 5e6}, {"seconds": 0.05}])
def test_a_connection_that_is_slower_than_the_others(slow: dict[str, float]) -> None:
    finding = only_finding("DD605", Source.GROUP, hosts(THREE, links=all_links(**slow)))
    assert finding.headline.startswith("the connection from node1 to node2 is slow: ")
    assert finding.ranks == (2, 3, 4, 5)


def test_a_host_all_of_whose_connections_are_slow() -> None:
    pairs = [(a, b) for a in range(3) for b in range(3) if a != b]
    links = [link(a, b, rate=4 << 20 if 1 in (a, b) else 200 << 20) for a, b in pairs]
    finding = only_finding("DD605", Source.GROUP, hosts(THREE, links=links))
    assert (
        finding.headline
        == "the connections of node1 carry at most 4 MiB/s, those of the other hosts 200 MiB/s"
    )
    assert finding.ranks == (2, 3)


@pytest.mark.parametrize("fast", [{"rate": 2e8}, {"seconds": 0.004}, {"rate": 5e8, "seconds": 3e-4}])
def test_a_connection_that_is_fast_enough(fast: dict[str, float]) -> None:
    skipped("DD605", Source.GROUP, hosts(THREE, links=all_links(**fast)))


# -- files ------------------------------------------------------------------------------------------------


def saved_and_missed(same_host: bool, path: str = "/tmp/best.pt") -> Trace:
    save = Save(path, begin=1.0, end=2.0, at=where(20))
    writer = changed(recording(0), saves=(save,), host="node0")
    reader = changed(recording(1), host="node0" if same_host else "node1")
    failure = Failure("FileNotFoundError", "[Errno 2] No such file or directory: '/tmp/best.pt'", "", 3.0)
    ranks = (RankTrace(0, finished=True, recording=writer), RankTrace(1, failure=failure, recording=reader))
    return Trace(ranks, status=1)


def test_a_file_that_is_on_another_host() -> None:
    finding = only_finding("DD408", Source.RUN, saved_and_missed(same_host=False))
    assert finding.headline == "rank 1 cannot find '/tmp/best.pt', which rank 0 wrote on another host"
    assert finding.ranks == (1,)


def test_a_file_of_another_name_or_of_the_same_host_is_no_matter_of_hosts() -> None:
    skipped("DD408", Source.RUN, saved_and_missed(same_host=True))
    passed("DD408", Source.RUN, saved_and_missed(same_host=False, path="/tmp/last.pt"))


def test_one_cause_is_one_finding() -> None:
    trace = saved_and_missed(same_host=False)
    (failed,) = ask("DD304", Source.RUN, trace)
    assert failed.code == "DD304"
    verdicts = [
        Verdict(check(code), Source.RUN, tuple(ask(code, Source.RUN, trace))) for code in ("DD304", "DD408")
    ]
    assert [finding.code for finding in merge(verdicts).findings] == ["DD408"]
