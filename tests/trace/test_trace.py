import dataclasses

import pytest

from ddpdoctor.judge import NotMeasured
from ddpdoctor.trace import RankTrace
from tests.support.traces import CLOSED_BY_PEER, broken, failed, finished, healthy


def test_a_healthy_run_is_not_broken():
    assert healthy().broken is None
    assert healthy().first_to_break() is None


def test_who_was_left_by_a_peer_is_a_victim_however_early_it_says_so():
    trace = broken(failed(0, CLOSED_BY_PEER, time=1.0), failed(1, "no such key", time=1.5))
    assert trace.first_to_break() == trace.ranks[1]


def test_who_failed_earlier_comes_first():
    trace = broken(failed(0, "late", time=2.0), failed(1, "early", time=1.0))
    assert trace.first_to_break() == trace.ranks[1]


def test_a_signal_comes_before_the_victims_errors():
    trace = broken(failed(0, CLOSED_BY_PEER, time=1.0), RankTrace(1, exit_code=-9))
    assert trace.first_to_break() == trace.ranks[1]


def test_the_launchers_sigterm_comes_after_the_failure():
    trace = broken(RankTrace(0, exit_code=-15), failed(1, "no such key"))
    assert trace.first_to_break() == trace.ranks[1]


def test_an_abort_after_the_end_breaks_nothing():
    rank = RankTrace(1, finished=True, summary=finished(1).summary, exit_code=-6)
    trace = broken(finished(0), rank)
    assert trace.broken is None
    assert rank.killed_by is None


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        (broken(finished(0), failed(1, "no such key")), "rank 1 of the training run broke"),
        (broken(RankTrace(0), timed_out=True), "the training run did not end within 4 s"),
        (broken(RankTrace(0)), "the launcher ended with status 1 before any rank failed"),
    ],
)
def test_values_of_a_broken_run_are_not_there(trace, reason):
    with pytest.raises(NotMeasured, match=reason):
        trace.values("weights")


def test_values_that_the_script_does_not_tell_are_not_there():
    with pytest.raises(NotMeasured, match="does not report its grad norm"):
        healthy().values("grad_norm")


def test_a_rank_that_was_waited_for_until_the_timeout_was_ended_after_it():
    gave_up = failed(1, "[pair.cc:537] Timed out waiting 4000ms for recv operation to complete", time=1.0)
    trace = broken(RankTrace(0, exit_code=-15), gave_up)
    assert trace.first_to_break() == trace.ranks[1]
    assert [[rank.rank for rank in ranks] for ranks in trace.overdue()] == [[0], [1]]


def test_what_several_checks_ask_is_computed_once_for_each_run():
    asked = []

    def ranks(trace):
        asked.append(trace)
        return len(trace.ranks)

    run = healthy()
    assert run.once(ranks) == run.once(ranks) == len(run.ranks)
    assert len(asked) == 1
    assert dataclasses.replace(run, ranks=()).once(ranks) == 0
