from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

TWO_NODES = Launch(nproc=8, nnodes=2, backend="nccl")
LOW = {"MEMLOCK": [8 << 20, 8 << 20]}


def test_a_low_limit_fails_on_several_nodes():
    finding = only_finding("DD704", Source.HOST, recorded_host("ib", TWO_NODES, rlimits=LOW))
    assert finding.level is Level.FAIL
    assert (
        finding.headline
        == "locked memory is limited to 8 MiB, and this machine has 2 InfiniBand or RoCE adapters"
    )
    assert "docker run --ulimit memlock=-1" in finding.fix


def test_on_one_node_it_is_information():
    finding = only_finding("DD704", Source.HOST, recorded_host("ib", Launch(backend="nccl"), rlimits=LOW))
    assert finding.level is Level.INFO


def test_where_the_hard_limit_allows_it_the_shell_can_raise_it():
    host = recorded_host("ib", TWO_NODES, rlimits={"MEMLOCK": [8 << 20, -1]})
    assert only_finding("DD704", Source.HOST, host).fix.startswith("ulimit -l unlimited")


def test_no_limit_and_a_generous_one_pass():
    assert passed("DD704", Source.HOST, recorded_host("ib", TWO_NODES)).text == "locked memory is unlimited"
    host = recorded_host("ib", TWO_NODES, rlimits={"MEMLOCK": [8 << 30, 8 << 30]})
    assert passed("DD704", Source.HOST, host).text == "locked memory is limited to 8 GiB"


def test_a_privileged_process_is_not_limited():
    host = recorded_host("ib", TWO_NODES, rlimits=LOW)
    host.system.recording["files"]["/proc/self/status"] = "Name:\tpython\nCapEff:\t000001ffffffffff\n"
    assert "CAP_IPC_LOCK" in passed("DD704", Source.HOST, host).text


def test_skips():
    assert (
        "no InfiniBand" in skipped("DD704", Source.HOST, recorded_host(launch=TWO_NODES, rlimits=LOW)).reason
    )
    assert "gloo" in skipped("DD704", Source.HOST, recorded_host("ib", rlimits=LOW)).reason
    host = recorded_host("ib", TWO_NODES, rlimits=LOW, environ={"NCCL_IB_DISABLE": "1"})
    assert skipped("DD704", Source.HOST, host).reason == "NCCL_IB_DISABLE is set"
