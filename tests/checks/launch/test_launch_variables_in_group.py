"""DD001 in the live group."""

import pytest

from ddpdoctor.model import Source
from tests.support.group import record
from tests.support.judging import only_finding, passed


def group(changes: dict[int, dict[str, str | None]] | None = None, nproc: int = 3, **fields):
    """Ranks as torchrun starts them, with some variables changed on some; None removes one."""
    values = []
    for rank in range(nproc):
        usual = {
            "RANK": str(rank),
            "WORLD_SIZE": str(nproc),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(nproc),
            "GROUP_RANK": "0",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
        }
        own = {
            name: text
            for name, text in {**usual, **(changes or {}).get(rank, {})}.items()
            if text is not None
        }
        in_store = [str(other) for other in range(nproc)]
        value = {"variables": own, "rank": rank, "world_size": nproc, "in_store": in_store, "host": "node0"}
        values.append({**value, **fields})
    return record("variables", values)


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({1: {"WORLD_SIZE": None}}, "WORLD_SIZE is not set on rank 1"),
        ({1: {"LOCAL_RANK": "one"}}, "LOCAL_RANK='one' is not a number on rank 1"),
        ({2: {"RANK": "1"}}, "RANK=1 on the process whose rank in the group is 2"),
        ({0: {"WORLD_SIZE": "4"}}, "WORLD_SIZE=4 on the process whose size in the group is 3"),
        ({2: {"LOCAL_RANK": "1"}}, "ranks 1-2 on node0 have the same LOCAL_RANK=1"),
        ({1: {"MASTER_PORT": "29501"}}, "MASTER_PORT differs: '29500' on ranks 0, 2, '29501' on rank 1"),
        ({r: {"LOCAL_WORLD_SIZE": "2"} for r in range(3)}, "LOCAL_WORLD_SIZE=2 on node0, which runs 3"),
    ],
)
def test_a_contradiction_is_named(changes, headline):
    assert only_finding("DD001", Source.GROUP, group(changes)).headline == headline


def test_a_store_that_holds_a_rank_twice():
    finding = only_finding("DD001", Source.GROUP, group(in_store=["0", "1", "1"]))
    assert finding.headline == "the store holds RANK [0, 1, 1] for a group of 3"


@pytest.mark.parametrize("nproc", [1, 3])
def test_torchruns_variables_pass(nproc):
    assert "complete and agree" in passed("DD001", Source.GROUP, group(nproc=nproc)).text


def test_two_nodes_that_share_a_host_name_pass():
    changes = {
        rank: {"GROUP_RANK": str(rank // 2), "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2"}
        for rank in range(4)
    }
    passed("DD001", Source.GROUP, group(changes, nproc=4))
