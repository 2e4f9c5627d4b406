"""The hosts of ranks in headlines."""

import pytest

from ddpdoctor.cli.judging import hosts_line, with_hosts
from ddpdoctor.judge import Verdict
from ddpdoctor.model import Source
from tests.support.judging import check

HOSTS = {0: "node0", 1: "node0", 2: "node1", 3: "node1", 4: "node2", 5: "node2"}


def named(headline: str, hosts: dict[int, str]) -> str:
    finding = check("DD301").fail(headline)
    (found,) = with_hosts(Verdict(check("DD301"), Source.RUN, (finding,)), hosts).findings
    return found.headline


@pytest.mark.parametrize(
    ("headline", "shown"),
    [
        ("rank 2 did not produce gradients", "rank 2 on node1 did not produce gradients"),
        ("ranks 2-3 wait for rank 0", "ranks 2-3 on node1 wait for rank 0 on node0"),
        ("ranks 1-2 and rank 5's lock", "ranks 1-2 on node0, node1 and rank 5's lock"),
        ("ranks 0, 2, 5 left", "ranks 0, 2, 5 left"),
        ("ranks 0-5 read the whole dataset", "ranks 0-5 read the whole dataset"),
        ("host node1 (ranks 2-3) was lost", "host node1 (ranks 2-3) was lost"),
        ("rank 17 of a group", "rank 17 of a group"),
        ("the master port is taken", "the master port is taken"),
    ],
)
def test_a_headline_names_the_hosts_of_its_ranks(headline: str, shown: str) -> None:
    assert named(headline, HOSTS) == shown


def test_one_host_needs_no_name() -> None:
    assert named("rank 1 left", {0: "node0", 1: "node0"}) == "rank 1 left"
    assert hosts_line({0: "node0", 1: "node0"}) is None


def test_all_hosts_in_a_line() -> None:
    assert hosts_line(HOSTS) == "ranks 0-1 on node0, ranks 2-3 on node1, ranks 4-5 on node2"
