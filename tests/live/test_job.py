"""How a running job is doing, from records that grow."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from ddpdoctor.blame.frames import Frame
from ddpdoctor.job.record_watch import Watch
from ddpdoctor.live.job import LiveJob, LiveRanks, State, sentence
from ddpdoctor.live.screen import screen
from ddpdoctor.recorder.events.files import Save
from ddpdoctor.recorder.events.process import Exit, GroupEvent, Raised
from ddpdoctor.recorder.events.training import Progress
from ddpdoctor.recorder.events.updates import OptimizerStep
from tests.support import records

SIZE = 4


class Rank:
    """The record of one rank, and where it says that it is."""

    def __init__(self, folder: Path, rank: int, host: str = "") -> None:
        environ = {"RANK": str(rank), "LOCAL_WORLD_SIZE": str(SIZE), "WORLD_SIZE": str(SIZE)}
        self.file, self.pid = folder / f"{100 + rank}-1.jsonl", 100 + rank
        records.write(self.file, records.start(self.pid, **environ))
        self.say(GroupEvent("init", 0.0, None, rank=rank, size=SIZE, backend="gloo"))

    def say(self, *events: object) -> None:
        records.write(self.file, *events)  # type: ignore[arg-type]

    def worked(self, seconds: float, waits: float) -> None:
        """In code that is in no phase of torch's."""
        phases = {"total": seconds + waits, "waits": waits}
        self.say(OptimizerStep(0, 0.0, None, step=1, phases=phases))

    def beat(self, now: float, steps: int, data: float = 0.0) -> None:
        at = ["train", "/job/train.py", 7]
        values = {
            "t": now,
            "moved": now,
            "thread": 3,
            "at": at,
            "stack": [at],
            "steps": steps,
            "waited": data,
        }
        self.file.with_suffix(".now").write_text(json.dumps(values))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("ddpdoctor.live.job.time.monotonic", lambda: now[0])
    return now


class Job:
    def __init__(self, folder: Path, clock: list[float]) -> None:
        self.ranks = [Rank(folder, rank) for rank in range(SIZE)]
        self._watch, self._clock = Watch(folder), clock
        self._live = LiveRanks(self._watch)

    def look(self, after: float = 0.0) -> LiveJob:
        self._clock[0] += after
        self._watch.look()
        return self._live.now()

    def step(self, seconds: float, *steps: int, data: float = 0.0) -> LiveJob:
        """Time passes, and each rank has ended so many steps."""
        self._clock[0] += seconds
        for rank, done in zip(self.ranks, steps, strict=True):
            rank.beat(self._clock[0], done, data)
        return self.look()


def drawn(job: LiveJob, height: int) -> list[str]:
    """The lines of the screen at 80 columns."""
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(screen(job, "train.py", height))
    return console.export_text().splitlines()


@pytest.fixture
def job(tmp_path: Path, clock: list[float]) -> Job:
    return Job(tmp_path, clock)


def test_before_the_first_step_nothing_is_claimed(tmp_path: Path, clock: list[float]) -> None:
    empty = LiveRanks(Watch(tmp_path)).now()
    assert sentence(empty) == "no rank has started yet"
    assert not empty.ended


def test_the_pace_is_that_of_the_last_half_minute(job: Job) -> None:
    job.step(0, 0, 0, 0, 0)
    job.step(10, 10, 10, 10, 10, data=1.0)
    now = job.step(10, 30, 30, 30, 30, data=11.0)
    assert now.steps == 30
    assert now.step_seconds == pytest.approx(20 / 30)
    assert now.ranks[0].data_share == pytest.approx(11 / 20)
    for _ in range(8):
        now = job.step(10, *[now.steps + 100] * SIZE, data=11.0)
    assert now.step_seconds == pytest.approx(0.1)
    assert now.ranks[0].data_share == pytest.approx(0)


def test_a_rank_that_works_longer_is_the_slowest(job: Job) -> None:
    for rank in job.ranks:
        is_slow = rank is job.ranks[2]
        rank.worked(0.030 if is_slow else 0.010, 0.001 if is_slow else 0.021)
    now = job.step(1, 5, 5, 5, 5)
    assert now.slowest
    assert now.slowest.rank == 2
    assert sentence(now) == (
        "step 5, waits 68 %, slowest rank 2 (own code): works 30.0 ms a step, the others 10.0 ms"
    )


def test_differences_of_a_millisecond_make_no_rank_the_slowest(job: Job) -> None:
    for rank, seconds in zip(job.ranks, (0.002, 0.0025, 0.0033, 0.002), strict=True):
        rank.worked(seconds, 0.001)
    assert job.step(1, 5, 5, 5, 5).slowest is None


def test_a_rank_without_progress_says_where_and_for_how_long(job: Job) -> None:
    job.step(0, 3, 3, 3, 3)
    now = job.look(after=25)
    assert {rank.state for rank in now.ranks} == {State.STILL}
    assert "ranks 0-3: no progress for 25 s" in sentence(now)


def test_ranks_that_want_a_look_come_first(job: Job) -> None:
    job.ranks[3].say(Raised("ValueError", "", 0.0))
    now = job.step(1, 9, 9, 4, 9)
    assert [rank.rank for rank in now.in_order()] == [3, 2, 0, 1]
    assert not now.ended
    for rank in job.ranks[:3]:
        rank.say(Exit("returned", 0.0))
    assert job.look().ended


def test_the_last_checkpoint_is_that_of_any_rank(job: Job) -> None:
    job.ranks[1].say(Save("/job/last.pt", None, 990.0, 995.0, size=10), Save("/job/cut.pt", None, 996.0))
    now = job.look()
    assert now.save
    assert (now.save.path, now.save_age) == ("/job/last.pt", 5.0)


def test_the_screen_has_no_more_lines_than_the_terminal(job: Job) -> None:
    now = job.step(1, 9, 9, 9, 9)
    lines = drawn(now, 10)
    assert len(lines) <= 10
    assert lines[0] == "train.py"
    assert all(len(line) <= 80 for line in lines)
    assert any("train.py:7" in line for line in lines)


def test_a_long_path_leaves_the_numbers_their_columns(job: Job) -> None:
    now = job.step(1, 9, 9, 9, 9)
    far = Frame("a_function_with_a_long_name", f"/tmp/{'folder/' * 20}train.py", 7)
    lines = drawn(replace(now, ranks=tuple(replace(rank, at=far) for rank in now.ranks)), 12)
    assert all(len(line) <= 80 for line in lines)
    assert next(line.split() for line in lines if "memory" in line)[-2:] == ["memory", "where"]
    assert sum("train.py:7" in line for line in lines) == 4


def test_many_ranks_are_folded(tmp_path: Path, clock: list[float]) -> None:
    ranks = [Rank(tmp_path, rank) for rank in range(40)]
    for rank in ranks:
        rank.beat(clock[0], 7)
    watch = Watch(tmp_path)
    watch.look()
    now = LiveRanks(watch).now()
    lines = drawn(now, 12)
    assert len(lines) <= 12
    assert lines[-1] == "35 more ranks: step 7 (5-39)"


def test_what_changed_over_hours_is_said(job: Job) -> None:
    for rank in job.ranks:
        leaks = rank is job.ranks[3]
        rank.say(
            *(
                Progress(100 * i, time=10.0 * i, memory=(1 << 30) + leaks * i * (16 << 20), loss=1.0)
                for i in range(1, 200)
            )
        )
    now = job.step(1, 9, 9, 9, 9)
    (drift,) = now.drifts
    assert drift.ranks == (3,)
    assert "memory of rank 3 grew from" in sentence(now)
    assert "and still grows since step" in sentence(now)
