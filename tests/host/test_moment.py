"""What two moments of a process tell, on plain data: tests/hang/test_capture.py looks at live ones."""

from pathlib import Path

import pytest

from ddpdoctor.blame.standstill import Doing
from ddpdoctor.hang.look import doing_of
from ddpdoctor.host.calls import Call
from ddpdoctor.host.moment import Moment, Ran, moment_of, wakes, work_share

MS = 1_000_000
BEFORE = Moment("S", 7, {7: Ran(), 8: Ran()})


def after(main: Ran | None = None, other: Ran | None = None, **fields: object) -> Moment:
    return Moment(**{"state": "S", "main": 7, "threads": {7: main or Ran(), 8: other or Ran()}, **fields})


@pytest.mark.parametrize(
    ("other", "share"),
    [
        (Ran(3 * MS, 400 * MS, 100), 0.003),  # gloo's loop on a busy machine: 30 us at a time
        (Ran(50 * MS, 900 * MS, 25), 0.95),  # works, and seldom gets a CPU
        (Ran(900 * MS, 0, 30), 0.9),
    ],
    ids=["looks again and again", "starves", "works"],
)
def test_queueing_counts_for_a_thread_that_works(other, share):
    assert work_share(BEFORE, after(other=other), 1.0) == pytest.approx(share)


def test_a_thread_that_began_in_between_counts():
    assert work_share(BEFORE, Moment("S", 7, {9: Ran(500 * MS, 0, 9)}), 1.0) == pytest.approx(0.5)


def test_only_the_main_thread_wakes():
    assert wakes(BEFORE, after(Ran(MS, 0, 3), Ran(MS, 0, 100))) == 3


@pytest.mark.parametrize(
    ("moment", "doing"),
    [
        (after(), Doing.WAITS),
        (after(call=Call("futex")), Doing.WAITS),
        (after(other=Ran(500 * MS, 0, 9)), Doing.COMPUTES),
        (after(moved=10 << 20), Doing.DISK),
        (after(state="D"), Doing.DISK),
        (after(state="T"), Doing.STOPPED),
        (after(state="t"), Doing.STOPPED),
        (after(state="Z"), Doing.GONE),
        (None, Doing.GONE),
    ],
)
def test_what_it_did(moment, doing):
    assert doing_of(BEFORE, moment, 1.0) is doing


def test_a_sleep_ends_by_itself():
    assert doing_of(Moment("S", 7, call=Call("clock_nanosleep", sleeps=True)), after(), 1.0) is Doing.SLEEPS


def test_one_that_never_gets_a_cpu_works():
    assert doing_of(Moment("R", 7), Moment("R", 7), 1.0) is Doing.COMPUTES


def test_a_process_that_ends_while_it_is_looked_at(tmp_path, monkeypatch):
    folder = tmp_path / "7"
    folder.mkdir()
    (folder / "stat").write_text("7 (python) S 1 7 7 0")

    def ended(*_: object) -> None:
        raise FileNotFoundError("/proc/7/task")

    monkeypatch.setattr("ddpdoctor.host.moment.folder_of", lambda pid: folder)
    monkeypatch.setattr(Path, "glob", ended)
    assert moment_of(7) == Moment("S", 7)
