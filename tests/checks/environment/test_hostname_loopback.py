import subprocess
import sys

import pytest

from ddpdoctor.launch import Launch
from ddpdoctor.model import Level, Source
from tests.support.hosts import recorded_host
from tests.support.judging import only_finding, passed

TWO_NODES = Launch(nnodes=2, master_addr="10.0.0.1")
ADDRESS = {"10.0.0.1": ["10.0.0.1"]}


def test_a_loopback_name_breaks_two_nodes():
    finding = only_finding("DD003", Source.HOST, recorded_host("loopback_name", TWO_NODES))
    assert finding.level is Level.FAIL
    assert finding.headline == "hostname 'node1' resolves to 127.0.1.1 only, a loopback address"
    assert "10.0.0.1" in finding.fix
    assert finding.evidence[0].text == "eth0 has 10.0.0.1"


def test_one_node_on_loopback_is_right():
    assert passed("DD003", Source.HOST, recorded_host("loopback_name")).text.endswith("127.0.1.1")


@pytest.mark.parametrize(("launch", "level"), [(Launch(), Level.INFO), (TWO_NODES, Level.FAIL)])
def test_a_name_that_does_not_resolve(launch, level):
    finding = only_finding(
        "DD003", Source.HOST, recorded_host(launch=launch, hostname="box", resolve=ADDRESS)
    )
    assert (finding.level, finding.headline) == (level, "hostname 'box' does not resolve")


def test_digits_are_read_as_an_address():
    host = recorded_host(hostname="12345", resolve={"12345": ["0.0.48.57"]})
    finding = only_finding("DD003", Source.HOST, host)
    assert (finding.level, finding.headline) == (Level.INFO, "hostname '12345' is read as an IPv4 address")


@pytest.mark.parametrize(
    ("environ", "backend"), [({"GLOO_SOCKET_IFNAME": "eth0"}, "gloo"), ({}, "nccl")], ids=["gloo", "nccl"]
)
def test_with_a_named_interface_only_torchrun_asks_for_the_name(environ, backend):
    launch = Launch(nnodes=2, master_addr="10.0.0.1", backend=backend)
    host = recorded_host("loopback_name", launch, environ=environ)
    assert only_finding("DD003", Source.HOST, host).level is Level.WARN


@pytest.mark.root
def test_a_real_host_without_a_resolvable_name():
    program = (
        "import socket; socket.sethostname('ddpdoctor-nosuch'); from ddpdoctor.host import Host, System;"
        "from ddpdoctor.launch import Launch; from tests.support.judging import only_finding;"
        "from ddpdoctor.model import Source; print(only_finding('DD003', Source.HOST, Host(Launch(), System())))"
    )
    command = ["unshare", "--uts", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "hostname 'ddpdoctor-nosuch' does not resolve" in done.stdout
