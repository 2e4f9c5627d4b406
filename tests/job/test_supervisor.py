"""What is kept of ranks that only say themselves where they are."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ddpdoctor.blame.hang_snapshot import Doing
from ddpdoctor.blame.liveness import HangDetector, JobState
from ddpdoctor.hang import snapshots
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.job_folder import SNAPSHOT
from ddpdoctor.job.supervisor import Supervisor
from ddpdoctor.launch import Launch
from ddpdoctor.recorder.events.process import Raised
from tests.support import records

LOCK = [["loop", "/jobs/train.py", 18], ["Semaphore.acquire", "/usr/lib/python3.11/threading.py", 5]]
COMPUTES = [["loop", "/jobs/train.py", 20]]


def rank(folder: Path, number: int, stack: list[list[object]], host: str, *, main: bool) -> None:
    """A rank that says where it is; its process is this one's by its number alone."""
    file = folder / f"{os.getpid()}-{number}.jsonl"
    start = records.start(os.getpid(), parent=1, RANK=str(number), LOCAL_WORLD_SIZE="1", WORLD_SIZE="2")
    records.write(file, replace(start, host=host))
    beat = {"t": 5.0, "moved": 1.0, "thread": 3, "main": main, "at": stack[0], "stack": stack}
    file.with_suffix(".now").write_text(json.dumps(beat))


def test_ranks_elsewhere_and_in_other_threads_are_kept_as_they_say(tmp_path: Path) -> None:
    (record := tmp_path / "record").mkdir()
    rank(record, 0, COMPUTES, "another", main=True)
    rank(record, 1, LOCK, os.uname().nodename, main=False)
    supervisor = Supervisor(Job(JobKind.LINE, ("ray", "job")), Launch(), record, os.getpid())
    supervisor.look()
    assert supervisor.capture(tmp_path, 5.0) is JobState.HUNG
    kept = snapshots.read(tmp_path / SNAPSHOT).ranks
    assert [(kept[0].host, kept[0].doing), (kept[1].host, kept[1].doing)] == [
        ("another", Doing.UNKNOWN),
        (os.uname().nodename, Doing.WAITS),
    ]
    assert [kept[number].stack[0].line for number in (0, 1)] == [20, 18]


def test_the_time_until_ranks_are_started_anew_is_no_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = records.start(os.getpid(), parent=1, RANK="0", WORLD_SIZE="1", TORCHELASTIC_MAX_RESTARTS="1")
    records.write(tmp_path / f"{os.getpid()}-0.jsonl", start, Raised("RuntimeError", "lost", 1.0))
    supervisor = Supervisor(Job(JobKind.LINE, ("torchrun",)), Launch(), tmp_path, os.getpid())
    counted: list[bool] = []
    monkeypatch.setattr(HangDetector, "go_on", lambda self, now, *, seen: counted.append(seen))
    assert supervisor.look().state is JobState.MOVES
    assert (supervisor.failed_at, counted) == (None, [False])
