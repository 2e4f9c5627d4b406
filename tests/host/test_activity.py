"""What two looks at a process tell, on plain data: tests/hang/test_capture.py looks at live ones."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.blame.hang_snapshot import Doing
from ddpdoctor.host.activity import Activity, Observer, Snapshot, Spent, ThreadTime, snapshot
from ddpdoctor.host.system_calls import SystemCall
from tests.support.processes import wait_until

MS = 1_000_000
BEFORE = Snapshot("S", 7, {7: ThreadTime(), 8: ThreadTime()})


def after(main: ThreadTime | None = None, other: ThreadTime | None = None, **fields: object) -> Snapshot:
    return Snapshot(
        **{"state": "S", "main": 7, "threads": {7: main or ThreadTime(), 8: other or ThreadTime()}, **fields}
    )


@pytest.mark.parametrize(
    ("other", "share"),
    [
        (ThreadTime(3 * MS, 400 * MS, 100), 0.003),  # gloo's loop on a busy machine: 30 us at a time
        (ThreadTime(50 * MS, 900 * MS, 25), 0.95),  # works, and seldom gets a CPU
        (ThreadTime(900 * MS, 0, 30), 0.9),
    ],
    ids=["looks again and again", "starves", "works"],
)
def test_queueing_counts_for_a_thread_that_works(other, share):
    assert Activity(BEFORE, after(other=other)).share() == pytest.approx(share)


def test_a_thread_that_began_in_between_counts():
    assert Activity(BEFORE, Snapshot("S", 7, {9: ThreadTime(500 * MS, 0, 9)})).share() == pytest.approx(0.5)


def test_only_the_main_thread_wakes():
    assert Activity(BEFORE, after(ThreadTime(MS, 0, 3), ThreadTime(MS, 0, 100))).wakes == 3


@pytest.mark.parametrize(
    ("last", "doing"),
    [
        (after(), Doing.WAITS),
        (after(call=SystemCall("futex")), Doing.WAITS),
        (after(other=ThreadTime(500 * MS, 0, 9)), Doing.COMPUTES),
        (after(moved=10 << 20), Doing.DISK),
        (after(state="D"), Doing.DISK),
        (after(state="T"), Doing.STOPPED),
        (after(state="t"), Doing.STOPPED),
        (after(state="Z"), Doing.GONE),
        (None, Doing.GONE),
    ],
)
def test_what_it_did(last, doing):
    assert Activity(BEFORE, last).doing() is doing


def test_a_sleep_ends_by_itself():
    assert (
        Activity(Snapshot("S", 7, call=SystemCall("clock_nanosleep", sleeps=True)), after()).doing()
        is Doing.SLEEPS
    )


def test_a_call_on_a_file_that_does_not_return_waits_for_its_disk():
    reading = Snapshot("S", 7, call=SystemCall("read of /data/shard-0", on_disk=True))
    assert Activity(reading, reading).doing() is Doing.DISK


def test_a_little_counts_where_nobody_is_waited_for():
    little = Activity(BEFORE, after(ThreadTime(30 * MS, 0, 9)))
    assert little.doing() is Doing.WAITS
    assert little.doing(main_thread=0.02) is Doing.COMPUTES
    assert Activity(BEFORE, after(other=ThreadTime(30 * MS, 0, 9))).doing(main_thread=0.02) is Doing.WAITS


def test_one_that_never_gets_a_cpu_works():
    assert Activity(Snapshot("R", 7), Snapshot("R", 7)).doing() is Doing.COMPUTES


def test_a_process_that_ends_while_it_is_looked_at(tmp_path, monkeypatch):
    gone = 1 << 30
    folder = tmp_path / str(gone)
    folder.mkdir()
    (folder / "stat").write_text(f"{gone} (python) S 1 7 7 0")

    def ended(*_: object) -> None:
        raise FileNotFoundError(f"/proc/{gone}/task")

    monkeypatch.setattr("ddpdoctor.host.activity.folder_of", lambda pid: folder)
    monkeypatch.setattr(Path, "glob", ended)
    assert snapshot(gone) == Snapshot("S", gone)


@pytest.fixture
def idle_after(monkeypatch):
    """For how long nobody has worked after ten seconds, and starved since the first look at the end of the first."""

    def run(*each: Snapshot) -> tuple[float, float]:
        clock = [0.0]

        def seen(pid: int, _: object) -> Snapshot:
            one = each[pid]
            times = {
                thread: ThreadTime(
                    *(int(part * clock[0]) for part in (ran.nanoseconds, ran.queued, ran.slices))
                )
                for thread, ran in one.threads.items()
            }
            return Snapshot(one.state, one.main, times)

        monkeypatch.setattr("ddpdoctor.host.activity.time.monotonic", lambda: clock[0])
        monkeypatch.setattr("ddpdoctor.host.activity.snapshot", seen)
        observer = Observer()
        while clock[0] < 10.0:
            clock[0] += 0.25
            idle = observer.idle_seconds(lambda: range(len(each)))
        return idle, round(observer.spent[Spent.STARVED], 1)

    return run


LOOKS_AROUND = after(ThreadTime(40 * MS, 2 * MS, 1000))
SPINS = after(ThreadTime(990 * MS, 2 * MS, 20))
STARVES = after(ThreadTime(20 * MS, 900 * MS, 5))
SHORT_TURNS = after(ThreadTime(20 * MS, 700 * MS, 500))
ON_DISK = after(state="D")
IN_QUEUE = after(state="R")


def test_ranks_that_wait_are_idle(idle_after):
    assert idle_after(LOOKS_AROUND, LOOKS_AROUND) == (10.0, 0.0)


@pytest.mark.parametrize(
    ("other", "starved"),
    [(STARVES, 8.1), (SHORT_TURNS, 6.3), (IN_QUEUE, 9.0), (ON_DISK, 10.0)],
    ids=["CPU", "short turns", "no turn at all", "disk"],
)
def test_where_cpus_or_the_disk_are_short_nobody_is_idle(idle_after, other, starved):
    assert idle_after(LOOKS_AROUND, other) == (0.0, starved)


def test_one_that_works_where_cpus_are_free_is_told_from_one_that_is_starved(idle_after):
    assert idle_after(LOOKS_AROUND, SPINS) == (0.0, 0.0)


@pytest.mark.parametrize("counted", [{}, {1: ThreadTime(), 2: ThreadTime()}])
def test_a_kernel_that_does_not_count_shares_still_tells_who_works(monkeypatch, counted):
    monkeypatch.setattr("ddpdoctor.host.activity._threads", lambda folder: counted)
    before = snapshot(os.getpid())
    ends = time.process_time() + 0.2
    while time.process_time() < ends:
        pass
    assert Activity(before, snapshot(os.getpid()), 0.2).doing() is Doing.COMPUTES


def works(first: Snapshot, last: Snapshot, seconds: float) -> bool:
    return seconds > 0.1 and Activity(first, last, seconds).doing() is Doing.COMPUTES


def test_a_system_without_proc_tells_who_works(monkeypatch):
    monkeypatch.setattr("ddpdoctor.host.activity.folder_of", lambda pid: None)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        first, began = snapshot(busy.pid), time.monotonic()
        try:
            wait_until(lambda: works(first, snapshot(busy.pid), time.monotonic() - began))
        finally:
            busy.kill()
    assert snapshot(busy.pid) is None


def test_a_thread_that_runs_the_script_counts_as_the_main_one():
    threads = {7: ThreadTime(slices=900), 8: ThreadTime(slices=1)}
    before = Snapshot("S", 7, dict.fromkeys(threads, ThreadTime()), call=SystemCall("futex"))
    after = replace(before, threads=threads)
    assert Activity(before, after, 1.0).wakes == 900.0
    assert Activity(before.of(8), after.of(8), 1.0).wakes == 1.0
    assert before.of(8).call == SystemCall()
    assert before.of(9) == before
