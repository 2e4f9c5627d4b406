"""The launch that options ask for, on recorded hosts."""

from dataclasses import replace

import pytest

from ddpdoctor.cli.launch_from_options import launch_of
from ddpdoctor.cli.option import NodeCount
from ddpdoctor.cli.options import CheckOptions
from ddpdoctor.launch import UNNUMBERED
from tests.support.hosts import recorded_host

SEVERAL = replace(CheckOptions(), nodes=NodeCount(2, 2), nproc=2)


@pytest.mark.parametrize("option", ["master_addr", "rdzv_endpoint"])
def test_the_host_that_has_the_address_is_node_0(option: str) -> None:
    host = recorded_host(resolve={"node0": ("192.0.2.7",), "node1": ("10.0.0.5",)})
    here = host.usable_interfaces[0].addresses[0]
    for address, number in ((here, 0), ("node0", UNNUMBERED), (host.hostname, 0)):
        assert launch_of(replace(SEVERAL, **{option: address}), host).node_rank == number


def test_a_number_that_is_given_wins() -> None:
    host = recorded_host()
    options = replace(SEVERAL, master_addr=host.hostname, node_rank=1)
    assert launch_of(options, host).node_rank == 1


def test_a_job_on_one_host_is_node_0() -> None:
    assert launch_of(replace(CheckOptions(), master_addr="node0", nproc=2), recorded_host()).node_rank == 0


def test_an_elastic_job_meets_by_c10d_at_node_0_whatever_number_a_host_is_given() -> None:
    host = recorded_host(resolve={"node0": ("192.0.2.7",)})
    options = replace(SEVERAL, nodes=NodeCount(2, 3), max_restarts=3, node_rank=2, master_addr="node0")
    launch = launch_of(options, host)
    assert (launch.nnodes, launch.min_nodes, launch.max_restarts, launch.node_rank) == (3, 2, 3, UNNUMBERED)
    assert launch.rendezvous == (("backend", "c10d"), ("endpoint", "node0:29500"))
    given = launch_of(replace(options, rdzv_endpoint="node0:2000", rdzv_id="7"), host)
    assert dict(given.rendezvous) == {"backend": "c10d", "endpoint": "node0:2000", "id": "7"}


@pytest.mark.parametrize(("text", "count"), [("3", (3, 3)), ("2:3", (2, 3)), ("1:1", (1, 1))])
def test_a_number_of_nodes(text: str, count: tuple[int, int]) -> None:
    assert NodeCount.parse(text) == NodeCount(*count)


@pytest.mark.parametrize("text", ["0", "3:2", "2:", "2:x", ":3", "1:2:3", ""])
def test_what_is_no_number_of_nodes(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - int says it in many ways
        NodeCount.parse(text)
