"""Whether a job stands still, on plain data."""

from dataclasses import replace

import pytest

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.blame.liveness import JobState, RankActivity, rank_activity, snapshot_state
from ddpdoctor.blame.place import place_of
from tests.support.hangs import backward, collective, loader, script

MAIN = script(30)
BARRIER = collective("barrier", 30)
LOADER = loader(30)


def standing(rank: int, stack: tuple[Frame, ...] = BARRIER, **fields: object) -> SampledProcess:
    known = {"doing": Doing.WAITS, "call": "futex", "stack": stack, "again": stack}
    return SampledProcess(rank + 100, rank, **{**known, **fields})


def working(rank: int, **fields: object) -> SampledProcess:
    return standing(rank, (MAIN,), **{"doing": Doing.COMPUTES, "call": "", **fields})


def test_all_wait():
    assert snapshot_state(HangSnapshot((standing(0), standing(1)))) is JobState.HUNG


@pytest.mark.parametrize("doing", [Doing.SLEEPS, Doing.STOPPED, Doing.GONE, Doing.WAITS])
def test_one_stands_elsewhere(doing):
    one = standing(1, (MAIN,), doing=doing)
    assert snapshot_state(HangSnapshot((standing(0), one))) is JobState.HUNG


@pytest.mark.parametrize(
    "one", [working(1), working(1, doing=Doing.DISK), working(1, again=(Frame("f", "/t.py", 1),))]
)
def test_one_works_while_another_waits(one):
    assert snapshot_state(HangSnapshot((standing(0), one))) is JobState.SLOW


@pytest.mark.parametrize(
    "moving",
    [{"changes": True}, {"wakes": 300.0}, {"again": (MAIN,)}],
    ids=["its variables change", "it wakes for every step", "it is elsewhere a second later"],
)
def test_who_comes_and_goes_in_a_collective_is_at_work(moving):
    assert snapshot_state(HangSnapshot((standing(0, **moving), standing(1, **moving)))) is JobState.MOVES


def test_a_thread_that_spins_brings_no_rank_out_of_its_collective():
    assert snapshot_state(HangSnapshot((standing(0, doing=Doing.COMPUTES), standing(1)))) is JobState.HUNG


def test_threads_that_send_a_large_tensor_do():
    assert snapshot_state(HangSnapshot((standing(0, doing=Doing.DISK), standing(1)))) is JobState.SLOW


@pytest.mark.parametrize(
    ("rank", "backend", "activity"),
    [
        (standing(0, doing=Doing.COMPUTES), "gloo", RankActivity.WORKS),
        (standing(0, doing=Doing.COMPUTES), "nccl", RankActivity.WAITS),
        (standing(0, backward(30), doing=Doing.COMPUTES), "nccl", RankActivity.WORKS),
        (standing(0, doing=Doing.SLEEPS, wakes=100.0), "gloo", RankActivity.WAITS),  # a FileStore
        (standing(0, (MAIN,), wakes=100.0), "gloo", RankActivity.WORKS),
        (standing(0, (MAIN,), doing=Doing.SLEEPS, wakes=100.0), "gloo", RankActivity.SLEEPS),
        (standing(0, (MAIN,), doing=Doing.SLEEPS, changes=True), "gloo", RankActivity.WORKS),
        (standing(0, (MAIN,), doing=Doing.STOPPED), "gloo", RankActivity.BLOCKED),
    ],
)
def test_what_a_rank_does(rank, backend, activity):
    assert rank_activity(rank, place_of(rank), (), backend) is activity


@pytest.mark.parametrize("name", ["save_checkpoint", "flush_it", "evaluate", "score", "fetch", "main"])
@pytest.mark.parametrize("doing", [Doing.SLEEPS, Doing.WAITS, Doing.COMPUTES, Doing.DISK])
def test_the_name_of_a_function_decides_nothing(name, doing):
    rank = standing(0, (script(30, name),), doing=doing)
    like = standing(0, (MAIN,), doing=doing)
    assert rank_activity(rank, place_of(rank)) is rank_activity(like, place_of(like))


def test_a_loader_whose_worker_works_is_slow_and_not_stuck():
    worker = replace(working(1), pid=200, role=ProcessRole.WORKER)
    waiting = (standing(0), standing(1, LOADER, call="poll of a pipe"))
    assert snapshot_state(HangSnapshot((*waiting, worker))) is JobState.SLOW
    stuck = replace(worker, doing=Doing.SLEEPS)
    assert snapshot_state(HangSnapshot((*waiting, stuck))) is JobState.HUNG


def test_nobody_is_there():
    assert snapshot_state(HangSnapshot()) is JobState.MOVES
