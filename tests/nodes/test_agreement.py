"""When a run is over for one host because of what became of another."""

import time
from types import SimpleNamespace

import pytest

from ddpdoctor.nodes.agreement import LOST_SECONDS, Agreement, RunState
from ddpdoctor.nodes.channel import SILENT_SECONDS
from ddpdoctor.nodes.meeting import Nodes

LONG = 3600.0


def nodes(heard: float, lost: str | None, state: RunState = RunState.MOVES) -> Nodes:
    """The host of rank 0, and what it knows of host 1."""
    return of_channels(channel(heard, lost, state))


def channel(heard: float, lost: str | None, state: RunState, *ranks: int) -> SimpleNamespace:
    return SimpleNamespace(heard=heard, lost=lost, status={"run": state.value, "ranks": list(ranks)})


def of_channels(*channels: SimpleNamespace) -> Nodes:
    facts = {number: SimpleNamespace(host=f"node{number}") for number in range(len(channels) + 1)}
    here = SimpleNamespace(node_rank=0)
    return Nodes(here, dict(enumerate(channels, 1)), facts)  # type: ignore[arg-type]


def of_three(spare: int) -> Agreement:
    """Ten seconds ago host 2 was lost."""
    then = time.monotonic() - 10
    there = channel(time.monotonic(), None, RunState.STILL, 2, 3)
    gone = channel(then, "its connection closed", RunState.MOVES, 4, 5)
    return Agreement(of_channels(there, gone), spare)


def test_an_elastic_job_that_lost_a_host_is_over_unless_torchrun_may_start_it_anew() -> None:
    agreement = of_three(spare=1)
    agreement.tell(RunState.STILL, (0, 1), 6)
    assert not agreement.is_over(LONG, restarts=True)
    assert agreement.is_over(LONG, restarts=False)
    assert of_three(spare=0).is_over(LONG, restarts=True)


def test_a_job_that_restarted_without_a_host_goes_on_and_may_hang_like_any_other() -> None:
    agreement = of_three(spare=1)
    agreement.tell(RunState.STILL, (0, 1), 6)
    assert not agreement.all_still()
    agreement.tell(RunState.STILL, (0, 1), 4)
    assert not agreement.is_over(LONG, restarts=False)
    assert agreement.all_still()


def test_a_host_that_was_lost_is_told_once_with_the_ranks_that_it_had() -> None:
    agreement = of_three(spare=1)
    assert [*agreement.newly_lost()] == ["host node2 (ranks 4-5) was lost: its connection closed"]
    assert [*agreement.newly_lost()] == []


def test_the_time_for_which_a_host_was_silent_is_not_waited_again() -> None:
    silent = nodes(time.monotonic() - SILENT_SECONDS, "it has not answered for 6 s")
    assert SILENT_SECONDS > LOST_SECONDS
    assert Agreement(silent).is_over(LONG)


def test_who_waits_for_a_host_that_was_lost_is_not_looked_at_as_in_a_hang() -> None:
    assert Agreement(nodes(time.monotonic(), None, RunState.STILL)).all_still()
    assert not Agreement(nodes(time.monotonic(), "its connection closed", RunState.STILL)).all_still()


def test_after_a_connection_closed_the_ranks_here_have_a_moment() -> None:
    assert not Agreement(nodes(time.monotonic() + LONG, "its connection closed")).is_over(LONG)


@pytest.mark.parametrize(("state", "over"), [(RunState.FAILED, True), (RunState.MOVES, False)])
def test_after_a_rank_of_another_host_failed_its_victims_have_their_time(state: RunState, over: bool) -> None:
    there = Agreement(nodes(time.monotonic(), None, state))
    assert not there.is_over(LONG)
    assert there.is_over(-1.0) is over
