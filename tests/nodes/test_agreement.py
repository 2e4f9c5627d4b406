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
    channel = SimpleNamespace(heard=heard, lost=lost, status={"run": state.value})
    return Nodes(SimpleNamespace(node_rank=0), {1: channel})  # type: ignore[arg-type, dict-item]


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
