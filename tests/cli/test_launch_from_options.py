"""The launch that options ask for, on recorded hosts."""

from dataclasses import replace

import pytest

from ddpdoctor.cli.launch_from_options import launch_of
from ddpdoctor.cli.options import CheckOptions, NodeCount
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
