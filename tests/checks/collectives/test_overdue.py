"""A rank at work when the others reach the timeout of the process group, and the launcher then ends it (DD306)."""

from ddpdoctor import registry
from ddpdoctor.judge import judge, merge
from ddpdoctor.model import Source
from ddpdoctor.trace import RankTrace
from tests.support.traces import CLOSED_BY_PEER, broken, failed

TIMED_OUT = "[pair.cc:537] Timed out waiting 4000ms for recv operation to complete"


def codes(*ranks):
    verdicts = judge(Source.RUN, registry.select(Source.RUN), broken(*ranks), print)
    return [(finding.code, finding.ranks) for finding in merge(verdicts).findings]


def test_the_rank_at_work_is_named_and_not_the_signal_that_ended_it():
    assert codes(RankTrace(0, exit_code=-15), failed(1, TIMED_OUT), failed(2, TIMED_OUT)) == [("DD306", (0,))]


def test_a_peer_that_was_seen_to_go_away_was_killed():
    assert codes(RankTrace(0, exit_code=-15), failed(1, CLOSED_BY_PEER)) == [("DD012", (0,))]
