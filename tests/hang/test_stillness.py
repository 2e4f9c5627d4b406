"""Whether a job stands still, on plain data."""

from dataclasses import replace

import pytest

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.standstill import Doing, Process, Role, Standstill
from ddpdoctor.hang.stillness import Stillness, stillness
from tests.support.standstills import collective, loader, script

MAIN = script(30)
BARRIER = collective("barrier", 30)
LOADER = loader(30)


def standing(rank: int, stack: tuple[Frame, ...] = BARRIER, **fields: object) -> Process:
    known = {"doing": Doing.WAITS, "call": "futex", "stack": stack, "again": stack}
    return Process(rank + 100, rank, **{**known, **fields})


def working(rank: int, **fields: object) -> Process:
    return standing(rank, (MAIN,), **{"doing": Doing.COMPUTES, "call": "", **fields})


def test_all_wait():
    assert stillness(Standstill((standing(0), standing(1)))) is Stillness.STILL


@pytest.mark.parametrize("doing", [Doing.SLEEPS, Doing.STOPPED, Doing.GONE, Doing.WAITS])
def test_one_stands_elsewhere(doing):
    one = standing(1, (MAIN,), doing=doing)
    assert stillness(Standstill((standing(0), one))) is Stillness.STILL


@pytest.mark.parametrize(
    "one", [working(1), working(1, doing=Doing.DISK), working(1, again=(Frame("f", "/t.py", 1),))]
)
def test_one_works_while_another_waits(one):
    assert stillness(Standstill((standing(0), one))) is Stillness.SLOW


@pytest.mark.parametrize(
    "moving",
    [{"changes": True}, {"wakes": 300.0}, {"again": (MAIN,)}],
    ids=["its variables change", "it wakes for every step", "it is elsewhere a second later"],
)
def test_who_comes_and_goes_in_a_collective_is_at_work(moving):
    assert stillness(Standstill((standing(0, **moving), standing(1, **moving)))) is Stillness.MOVES


@pytest.mark.parametrize("doing", [Doing.COMPUTES, Doing.DISK])
def test_what_other_threads_do_brings_no_rank_out_of_its_collective(doing):
    assert stillness(Standstill((standing(0, doing=doing), standing(1)))) is Stillness.STILL


def test_a_loader_whose_worker_works_is_slow_and_not_stuck():
    worker = replace(working(1), pid=200, role=Role.WORKER)
    waiting = (standing(0), standing(1, LOADER, call="poll of a pipe"))
    assert stillness(Standstill((*waiting, worker))) is Stillness.SLOW
    stuck = replace(worker, doing=Doing.SLEEPS)
    assert stillness(Standstill((*waiting, stuck))) is Stillness.STILL


def test_nobody_is_there():
    assert stillness(Standstill()) is Stillness.MOVES
