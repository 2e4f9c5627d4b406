import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed, skipped

ONE_NODE = Launch(backend="nccl")
TWO_NODES = Launch(backend="nccl", nnodes=2)
LOOPBACK = {"name": "lo", "addresses": ["127.0.0.1", "::1"]}


def host(value=None, launch=ONE_NODE, **changes):
    environ = {} if value is None else {"NCCL_SOCKET_IFNAME": value}
    return recorded_host(launch=launch, environ={"HOME": "/home/ana", **environ}, **changes)


@pytest.mark.parametrize("value", ["nosuch0", "=eth", "^eth,lo", "eth0x", "=^eth0", "nosuch0,^lo"])
def test_a_value_that_matches_nothing_fails_on_one_node_too(value):
    finding = only_finding("DD701", Source.HOST, host(value))
    assert finding.level is Level.FAIL
    assert finding.headline == f"NCCL_SOCKET_IFNAME={value!r} matches no network interface that is up"
    assert finding.fix == "unset NCCL_SOCKET_IFNAME; or: export NCCL_SOCKET_IFNAME=eth0"
    assert "eth0 is up: 10.0.0.1" in [one.text for one in finding.evidence]


@pytest.mark.parametrize(
    "value", ["eth", "eth0", "=eth0", "=lo,eth0", "^lo", "^docker,lo", "^=lo", "ens,eth", "eth0:1"]
)
def test_prefixes_exact_names_and_exclusions_are_read_as_nccl_reads_them(value):
    assert passed("DD701", Source.HOST, host(value, TWO_NODES)).text.startswith("NCCL_SOCKET_IFNAME matches")


def test_an_interface_that_is_down_does_not_count():
    down = [LOOPBACK, {"name": "eth0", "addresses": ["10.0.0.1"], "up": False}]
    assert (
        "matches no network interface"
        in only_finding("DD701", Source.HOST, host("eth0", interfaces=down)).headline
    )


def test_loopback_is_enough_on_one_node_and_fails_on_two():
    passed("DD701", Source.HOST, host("lo"))
    finding = only_finding("DD701", Source.HOST, host("lo", TWO_NODES))
    assert finding.headline == "NCCL_SOCKET_IFNAME='lo' matches only loopback, and the job has 2 nodes"


def test_the_configuration_file_counts_and_is_named():
    files = {"/etc/nccl.conf": "# site\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAME==ens9\n"}
    finding = only_finding("DD701", Source.HOST, host(files=files))
    assert finding.headline == (
        "NCCL_SOCKET_IFNAME='=ens9' in /etc/nccl.conf matches no network interface that is up"
    )


def test_the_environment_wins_over_the_users_file_and_that_over_the_systems():
    files = {"/etc/nccl.conf": "NCCL_SOCKET_IFNAME=a0", "/home/ana/.nccl.conf": "NCCL_SOCKET_IFNAME=eth0"}
    passed("DD701", Source.HOST, host(files=files))
    passed("DD701", Source.HOST, host("lo", files=files))


def test_without_the_variable_nccls_own_choice_is_told():
    assert passed("DD701", Source.HOST, host()).text == "NCCL chooses eth0"
    assert passed("DD701", Source.HOST, host("x")).text == "NCCL chooses eth0"


def test_only_a_container_bridge_cannot_reach_other_nodes():
    interfaces = [LOOPBACK, {"name": "docker0", "addresses": ["172.17.0.2"]}]
    passed("DD701", Source.HOST, host(interfaces=interfaces))
    finding = only_finding("DD701", Source.HOST, host(launch=TWO_NODES, interfaces=interfaces))
    assert finding.headline == "NCCL has only docker0 to use, and the job has 2 nodes"


def test_no_interface_at_all():
    finding = only_finding(
        "DD701", Source.HOST, host(interfaces=[{"name": "lo", "addresses": [], "up": False}])
    )
    assert finding.headline == "no network interface is up with an address"


def test_gloo_does_not_read_it():
    assert "does not read" in skipped("DD701", Source.HOST, host("nosuch0", Launch())).reason
