"""Which ranks a running job has, from what they record."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ddpdoctor.job.record_watch import Watch
from ddpdoctor.recorder.events.process import Device, Exit, GroupEvent, Note, Raised
from ddpdoctor.recorder.events.schema import Event, encode
from ddpdoctor.recorder.where import Site
from tests.support import records


class Record:
    """The record of one process, written as the recorder does."""

    def __init__(
        self, folder: Path, pid: int, parent: int = 1, rank: int | None = None, host: str = "", **environ: str
    ) -> None:
        self.file = folder / f"{pid}.jsonl"
        variables = {**environ, **({} if rank is None else {"RANK": str(rank), "LOCAL_WORLD_SIZE": "2"})}
        self.say(replace(records.start(pid, parent=parent, **variables), host=host))

    def say(self, *events: Event | Site) -> "Record":
        records.write(self.file, *events)
        return self

    def beat(self, moved: float, *stack: tuple[str, str, int]) -> "Record":
        beat = {
            "t": moved + 1,
            "moved": moved,
            "thread": 3,
            "at": stack[0] if stack else None,
            "stack": stack,
        }
        self.file.with_suffix(".now").write_text(json.dumps(beat).ljust(4096))
        return self


def joining(arguments: dict[str, Any], **environ: str) -> GroupEvent:
    return GroupEvent("joining", 0.0, None, arguments=arguments, environ=environ)


def looked(folder: Path) -> Watch:
    watch = Watch(folder)
    watch.look()
    return watch


def test_ranks_that_were_killed_when_all_was_done_have_ended(tmp_path: Path) -> None:
    """As Ray kills its workers, which say nothing of it."""
    Record(tmp_path, 10, rank=0)
    Record(tmp_path, 11, rank=1)
    watch = looked(tmp_path)
    assert not watch.all_ended(2, lambda pid: pid == 10)
    assert watch.all_ended(2, lambda pid: True)


def test_ranks_of_torchrun_have_ended_when_each_has(tmp_path: Path) -> None:
    Record(tmp_path, 5)  # the launcher, which imports torch too
    first = Record(tmp_path, 10, parent=5, rank=0).say(Exit("returned", 0.0))
    watch = looked(tmp_path)
    assert not watch.all_ended(2)
    second = Record(tmp_path, 11, parent=5, rank=1)
    watch.look()
    assert not watch.all_ended(2)
    second.say(Exit("exit", 0.0, 0))
    watch.look()
    assert watch.all_ended(2)
    assert watch.all_ended(None)
    assert not watch.somebody_failed()
    assert [one.pid for one in watch.ranks().values()] == [10, 11]
    assert first.file.exists()


def test_a_worker_is_no_rank(tmp_path: Path) -> None:
    Record(tmp_path, 10, rank=0)
    Record(tmp_path, 12, parent=10, rank=0).say(Exit("os._exit", 0.0, 1))
    assert [one.pid for one in looked(tmp_path).ranks().values()] == [10]
    assert not looked(tmp_path).somebody_failed()


def test_a_worker_that_leaves_no_record_is_forgotten(tmp_path: Path) -> None:
    Record(tmp_path, 10, rank=0)
    worker = Record(tmp_path, 20, parent=10, rank=0)
    watch = looked(tmp_path)
    assert len(watch._processes) == len(watch._files) == 2
    worker.file.unlink()
    watch.look()
    assert len(watch._processes) == len(watch._files) == 1
    assert [rank.pid for rank in watch.ranks().values()] == [10]


def test_a_spawned_process_is_the_rank_that_it_says(tmp_path: Path) -> None:
    Record(tmp_path, 5)
    Record(tmp_path, 10, parent=5).say(joining({"rank": 1}))
    joined = Record(tmp_path, 11, parent=5).say(joining({}))
    joined.say(GroupEvent("init", 0.0, None, rank=0, size=2))
    assert sorted((rank, one.pid) for rank, one in looked(tmp_path).ranks().items()) == [(0, 11), (1, 10)]


def test_who_has_destroyed_its_process_group(tmp_path: Path) -> None:
    record = Record(tmp_path, 10, rank=0).say(GroupEvent("destroy", 1.0, None))
    watch = looked(tmp_path)
    assert not watch.ranks()[0].destroyed_group  # it is still in there
    record.say(GroupEvent("destroy", 1.0, None, returned=True))
    watch.look()
    assert watch.ranks()[0].destroyed_group
    record.say(joining({}))
    watch.look()
    assert not watch.ranks()[0].destroyed_group


def test_who_failed(tmp_path: Path) -> None:
    record = Record(tmp_path, 10, rank=0)
    watch = looked(tmp_path)
    assert not watch.somebody_failed()
    record.say(Raised("ValueError", "", 0.0))
    watch.look()
    assert watch.somebody_failed()


def test_a_rank_that_was_started_anew_counts_as_it_is_now(tmp_path: Path) -> None:
    Record(tmp_path, 10, rank=0).say(Exit("exception", 0.0, 1))
    again = {"RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    records.write(tmp_path / "20.jsonl", records.start(20, 9.0, **again))
    assert not looked(tmp_path).somebody_failed()


def test_half_a_line_waits_for_its_end(tmp_path: Path) -> None:
    record, line = Record(tmp_path, 10, rank=0), encode(Exit("returned", 1.0, 0), 1.0)
    watch = looked(tmp_path)
    with record.file.open("a") as file:
        file.write(line[:30])
    watch.look()
    assert not watch.all_ended(1)
    with record.file.open("a") as file:
        file.write(line[30:] + "\n")
    watch.look()
    assert watch.all_ended(1)


def test_where_a_rank_says_that_it_is(tmp_path: Path) -> None:
    record = Record(tmp_path, 10, rank=0)
    watch = looked(tmp_path)
    assert watch.ranks()[0].beat is None
    record.beat(7.0, ("main", "/jobs/train.py", 3), ("barrier", "torch/distributed/distributed_c10d.py", 9))
    watch.look()
    beat = watch.ranks()[0].beat
    assert beat is not None
    assert (beat.moved, str(beat.at), len(beat.stack)) == (7.0, "main (/jobs/train.py:3)", 2)
    record.file.with_suffix(".now").write_text('{"t":9.0,"mov')  # half of it is there, as a reader may see it
    watch.look()
    assert watch.ranks()[0].beat == beat


def test_what_is_progress_and_what_is_not(tmp_path: Path) -> None:
    record = Record(tmp_path, 10, rank=0)
    watch = looked(tmp_path)
    before = watch.ranks()[0].moved
    record.say(Site("train.py", 3, "main", 0), Note("x", "y"))
    watch.look()
    assert watch.ranks()[0].moved == before
    record.say(Device(0, "set"))
    watch.look()
    assert watch.ranks()[0].moved > before


def test_what_a_rank_tells_of_its_group(tmp_path: Path) -> None:
    given = {"timeout": 20.0, "backend": "gloo"}
    environ = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1"}
    Record(tmp_path, 10).say(joining(given, **environ))
    (process,) = looked(tmp_path).ranks().values()
    assert (process.rank, process.world_size, process.timeout) == (1, 4, 20.0)
    assert process.local
    elsewhere = {**environ, "MASTER_ADDR": "node-1"}
    Record(tmp_path, 11).say(joining({"rank": 2}, **elsewhere))
    assert not looked(tmp_path).ranks()[2].local


def test_a_rank_on_another_host_has_a_clock_and_processes_of_its_own(tmp_path: Path) -> None:
    far = 1e9
    record = Record(tmp_path, 10, rank=0, host="another").beat(far)
    watch, now = looked(tmp_path), time.monotonic()
    rank = watch.ranks()[0]
    assert rank.elsewhere
    assert rank.beat is not None
    assert now - 5 < rank.beat.time <= now
    assert rank.beat.moved == pytest.approx(rank.beat.time - 1)
    record.beat(
        far + 50
    )  # fifty seconds later by its clock, and at once by ours: what was read first was late
    watch.look()
    assert rank.beat.time <= time.monotonic()
    assert not watch.all_ended(1, lambda pid: True)


def test_after_a_restart_by_which_a_host_has_other_ranks_the_failed_ones_are_history(tmp_path: Path) -> None:
    """Else a job that goes on could neither hang nor end."""
    torchrun = {"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "1"}
    for local in (0, 1):
        environ = {**torchrun, "LOCAL_RANK": str(local)}
        failed = Raised("RuntimeError", "Connection closed by peer", 0.0)
        Record(tmp_path, 10 + local, parent=5, rank=4 + local, WORLD_SIZE="6", **environ).say(failed)
        start = records.start(20 + local, 9.0, parent=5, RANK=str(2 + local), WORLD_SIZE="4", **environ)
        start.environ["TORCHELASTIC_RESTART_COUNT"] = "1"  # type: ignore[index]
        records.write(tmp_path / f"{20 + local}.jsonl", start)
    watch = looked(tmp_path)
    assert {rank: process.pid for rank, process in watch.ranks().items()} == {2: 20, 3: 21}
    assert not watch.somebody_failed()
    assert not watch.may_restart()


def test_of_two_jobs_of_a_launch_line_the_ranks_are_those_of_the_last(tmp_path: Path) -> None:
    """Else ranks of an evaluation would wait for those that only trained."""
    for rank in (0, 1):
        record = Record(tmp_path, 10 + rank, rank=rank).say(joining({}))
        record.say(Exit("returned", 4.0)).beat(3.0)
    records.write(tmp_path / "20.jsonl", records.start(20, 6.0, RANK="0"))
    watch = looked(tmp_path)
    assert {rank: process.pid for rank, process in watch.ranks().items()} == {0: 20}
