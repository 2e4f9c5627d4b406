import pytest

from ddpdoctor.model import Level, Source
from tests.support.judging import only_finding, passed, skipped
from tests.support.logs import TRAINING, log


def using(**networks):
    return "".join(
        f"{host}:{pid}:{pid} [{pid}] NCCL INFO Using network {network}\n"
        for host, network in networks.items()
        for pid in (7, 8)
    )


def test_a_host_that_fell_back_to_sockets():
    text = using(node_a="IB", node_b="IB", node_c="Socket") + TRAINING
    finding = only_finding("DD605", Source.LOG, log(text))
    assert finding.headline == "NCCL uses sockets on node_c, and IB on the other hosts"
    assert finding.level is Level.WARN
    assert finding.evidence[0].text == "node_c:7: Using network Socket"


@pytest.mark.parametrize("network", ["IB", "Socket", "AWS Libfabric"])
def test_one_network_for_all_is_what_there_is(network):
    said = passed("DD605", Source.LOG, log(using(node_a=network, node_b=network)))
    assert said.text == f"NCCL uses the network {network} on every host"


def test_a_communicator_within_a_host_may_use_another():
    """Two groups of one host: the second one meets over sockets, on every host alike."""
    text = using(node_a="IB", node_b="IB") + "node_a:9:9 [0] NCCL INFO Using network Socket\n"
    text += "node_b:9:9 [0] NCCL INFO Using network Socket\n"
    passed("DD605", Source.LOG, log(text))


def test_an_output_without_nccl():
    skipped("DD605", Source.LOG, log(TRAINING))
