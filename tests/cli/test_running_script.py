"""The live line of a script: its steps, and for how long it may train."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from ddpdoctor.cli import examination
from ddpdoctor.cli.examination import RunningScript
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.nodes.agreement import RunState
from ddpdoctor.recorder.options import RecorderOptions


def lines(monkeypatch: pytest.MonkeyPatch, job: Job, *looks: tuple[float, int, RunState]) -> list[str]:
    """What is said at these times, of so many steps, while the job does this."""
    said: list[str] = []
    now = 0.0
    monkeypatch.setattr(examination.time, "monotonic", lambda: now)
    running = RunningScript(job, cast(Any, SimpleNamespace(stage=said.append)))
    for now, steps, state in looks:  # noqa: B007 - the clock reads it
        beat = SimpleNamespace(steps=steps)
        running.show(cast(Any, SimpleNamespace(ranks=lambda: {0: SimpleNamespace(beat=beat)})), state)  # noqa: B023
    return said


def test_steps_and_time_left_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(JobKind.SCRIPT, ("train.py",), RecorderOptions(budget=30.0))
    looks = [
        (2.0, 0, RunState.MOVES),
        (4.0, 5, RunState.MOVES),
        (4.2, 6, RunState.MOVES),
        (14.0, 50, RunState.MOVES),
    ]
    assert lines(monkeypatch, job, *looks, (40.0, 99, RunState.MOVES)) == [
        "running train.py: training step 5, at most 30 s of training left",
        "running train.py: training step 50, at most 20 s of training left",
        "running train.py: training step 99, to its end",
    ]


def test_no_time_is_promised_where_none_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(JobKind.SCRIPT, ("train.py",), RecorderOptions(full=True))
    assert lines(monkeypatch, job, (4.0, 5, RunState.MOVES)) == ["running train.py: training step 5"]


def test_a_job_that_stands_still_keeps_the_sentence_about_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines(monkeypatch, Job(JobKind.SCRIPT, ("train.py",)), (4.0, 5, RunState.STILL)) == []
