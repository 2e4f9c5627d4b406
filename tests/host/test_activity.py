"""Whether somebody works: by CPU time, where there is CPU time to have."""

import psutil
import pytest

from ddpdoctor.host import activity
from ddpdoctor.host.activity import Activity, patience

WAITING, WORKING = 0.05, 0.9
RANKS = range(100, 104)


@pytest.fixture
def idle_after(monkeypatch):
    """How long nobody has worked after ten seconds, by what share of a CPU each rank used and what was unused."""

    free = []

    def run(used, unused, cpus=2.0, status=psutil.STATUS_SLEEPING):
        clock = [0.0]
        monkeypatch.setattr(activity.time, "monotonic", lambda: clock[0])
        monkeypatch.setattr(activity, "look", lambda pid: (status, used * clock[0]))
        monkeypatch.setattr(activity, "unused_seconds", lambda: unused * clock[0])
        ranks = Activity(cpus)
        while clock[0] < 10.0:
            clock[0] += 0.25
            idle = ranks.idle_seconds(RANKS)
        free.append(ranks.free_seconds())
        return idle

    run.free = free
    return run


def test_ranks_that_wait_are_idle(idle_after):
    assert idle_after(WAITING, unused=1.8) == 10.0


@pytest.mark.parametrize(
    ("used", "unused", "cpus"),
    [
        (WORKING, 1.1, 8.0),
        (0.02, 0.0, 2.0),  # other work, or many more ranks than CPUs, leaves each rank next to nothing
        (0.1, 60.0, 0.4),  # a quota does, though the machine has CPUs to spare
    ],
)
def test_ranks_that_work_or_may_be_starved_are_not(idle_after, used, unused, cpus):
    assert idle_after(used, unused, cpus) == 0.0


def test_one_that_works_where_cpus_are_free_is_told_from_one_that_is_starved(idle_after):
    idle_after(WORKING, unused=5.0, cpus=8.0)
    idle_after(WORKING, unused=0.1, cpus=8.0)
    idle_after(0.0, unused=5.0, status=psutil.STATUS_DISK_SLEEP)
    assert idle_after.free == [10.0, 0.0, 0.0]


def test_a_rank_that_waits_for_its_disk_is_not(idle_after):
    assert idle_after(0.0, unused=2.0, status=psutil.STATUS_DISK_SLEEP) == 0.0


def test_what_is_unused_is_read_of_this_machine():
    assert activity.unused_seconds() > 0.0


@pytest.mark.parametrize(
    ("ranks", "cpus", "times"), [(1, 64, 1.0), (8, 2, 1.0), (32, 2, 4.0), (8, 0.5, 4.0), (4, 1, 1.0)]
)
def test_deadlines_grow_with_the_ranks_on_a_cpu(ranks, cpus, times):
    assert patience(ranks, cpus) == times
