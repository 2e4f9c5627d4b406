"""The live group as all of its hosts saw it."""

import json
from dataclasses import replace
from typing import Any

from ddpdoctor.blame.frames import Failure
from ddpdoctor.cli.hosts import group_values, with_hosts_group
from ddpdoctor.group.group_record import GroupRecord, RankRecord
from ddpdoctor.launch import Launch

LAUNCH = Launch(nproc=1, nnodes=2)
CLOSED = Failure("RuntimeError", "Connection closed by peer [10.0.0.1]:4711", "", 9.0)
TIME_LIMIT = "the time limit was reached"


def group(*ranks: RankRecord, **fields: object) -> GroupRecord:
    return GroupRecord(LAUNCH, ranks, **fields)  # type: ignore[arg-type]


def sent(record: GroupRecord) -> Any:
    """What arrives at the host of rank 0."""
    return json.loads(json.dumps(group_values(record)))


def test_ranks_whose_peers_were_ended_for_the_time_limit_have_not_failed() -> None:
    """By whichever host: the one of rank 0, or another."""
    ended = group(RankRecord(0, pid=10), broken=TIME_LIMIT, out_of_time=True)
    victim = group(RankRecord(1, pid=11, failure=CLOSED), broken="rank 1 failed")
    for here, other in ((ended, victim), (victim, ended)):
        record = with_hosts_group(here, [sent(other)])
        assert record.out_of_time
        assert [rank.pid for rank in record.ranks] == [10, 11]
        assert record.broken == TIME_LIMIT
        assert record.first_to_break() is None


def test_a_rank_that_failed_by_itself_has_failed() -> None:
    fault = replace(CLOSED, type="ValueError", message="batch of 0")
    here = group(RankRecord(0, pid=10), broken=TIME_LIMIT, out_of_time=True)
    record = with_hosts_group(here, [sent(group(RankRecord(1, pid=11, failure=fault)))])
    first = record.first_to_break()
    assert first is not None
    assert first.rank == 1


def test_what_cannot_be_read_of_another_host_leaves_its_ranks_as_they_are_known() -> None:
    here = group(RankRecord(0, pid=10), RankRecord(1, joined=False))
    assert with_hosts_group(here, [{"ranks": [3], "broken": "it broke"}]) == replace(here, broken="it broke")
