"""Hosts of a job, as plain data."""

from collections.abc import Sequence
from typing import Any

from ddpdoctor.group.group_record import GroupRecord, RankRecord, Stage
from ddpdoctor.launch import Launch
from ddpdoctor.nodes.facts import NodeFacts
from ddpdoctor.nodes.links import Link


def node(number: int, **facts: Any) -> NodeFacts:
    """A host with two ranks."""
    address = f"10.0.0.{number + 1}"
    usual: dict[str, Any] = {
        "versions": {"torch": "2.13.0", "Python": "3.11.7"},
        "address": address,
        "interfaces": {address: "eth0"},
        "mtus": {"eth0": 1500},
    }
    return NodeFacts(number, f"node{number}", 2, **{**usual, **facts})


def link(source: int, target: int, **measured: Any) -> Link:
    """A fast connection."""
    fast = {"seconds": 1e-4, "rate": 1e9}
    return Link(source, target, f"10.0.0.{target + 1}", 40_000 + target, **{**fast, **measured})


def hosts(nodes: Sequence[NodeFacts], nnodes: int = 0, **fields: Any) -> GroupRecord:
    """The group of a job on these hosts, of which none measured anything."""
    launch = Launch(nproc=2, nnodes=nnodes or len(nodes), master_addr="10.0.0.1")
    ranks = tuple(RankRecord(rank) for rank in range(launch.world_size))
    return GroupRecord(launch, ranks, nodes=tuple(nodes), **fields)


NOT_JOINED: dict[str, Any] = {
    "stage": Stage.JOIN,
    "broken": "the group stopped answering in joining the group",
}
"""Of a group whose ranks did not meet."""
