"""What a run does about a job that seems to have stopped."""

import sys
import time
from pathlib import Path

import pytest

from ddpdoctor.blame.liveness import JobState, Judgement
from ddpdoctor.job import run
from ddpdoctor.job.command import Job, JobKind
from ddpdoctor.job.job_folder import SNAPSHOT
from ddpdoctor.job.run import JobRun, RunPolicy
from ddpdoctor.job.supervisor import Supervisor
from ddpdoctor.launch import Launch
from ddpdoctor.recorder.options import RecorderOptions

FORKS = Path(__file__).with_name("scripts") / "forks.py"


def run_seen_as(judgements, monkeypatch, folder, closely=JobState.HUNG, policy=None):
    """The trace of a job that goes on until these judgements were made of it, and when it was looked at closely.

    Args:
        closely: what a close look shows.
    """
    looks, enough = [], folder / "enough"

    class Scripted(Supervisor):
        def look(self):
            if judgements:
                return judgements.pop(0)
            enough.touch()
            return Judgement(JobState.MOVES)

        def capture(self, folder, still):
            looks.append(still)
            (folder / SNAPSHOT).mkdir()
            return closely

    monkeypatch.setattr(run, "Supervisor", Scripted)
    code = (
        f"import os, time\nwhile not os.path.exists({str(enough)!r}): time.sleep(0.01)\nprint('to the end')"
    )
    line = (sys.executable, "-c", code)
    job = JobRun(Job(JobKind.LINE, line, RecorderOptions()), Launch(), folder, policy=policy)
    return job.finish(time.monotonic() + 60), looks


def test_a_job_that_moves_while_it_is_looked_at_goes_on(tmp_path, monkeypatch):
    judgements = [Judgement(JobState.HUNG, still=9.0), Judgement(JobState.MOVES, still=0.1)]
    trace, looks = run_seen_as(judgements, monkeypatch, tmp_path)
    assert looks == [9.0]
    assert (trace.status, trace.timed_out, trace.snapshot) == (0, False, None)
    assert (tmp_path / "stdout.log").read_text() == "to the end\n"
    assert not (tmp_path / SNAPSHOT).exists()


def test_a_machine_that_stood_still_between_two_looks_stopped_the_job_too(tmp_path, monkeypatch):
    stalls = []
    monkeypatch.setattr(run, "LONGEST_SPAN", 0.0)
    monkeypatch.setattr(Supervisor, "go_on", lambda self, seen: stalls.append(seen))
    run_seen_as([Judgement(JobState.MOVES)], monkeypatch, tmp_path)
    assert set(stalls) == {False}


@pytest.mark.parametrize("closely", [JobState.MOVES, JobState.SLOW])
def test_a_job_in_which_a_close_look_shows_work_goes_on(closely, tmp_path, monkeypatch):
    judgements = [Judgement(JobState.HUNG, still=9.0), Judgement(JobState.HUNG, still=9.2)]
    trace, looks = run_seen_as(judgements, monkeypatch, tmp_path, closely)
    assert looks == [9.0]
    assert (trace.status, trace.timed_out, trace.snapshot) == (0, False, None)


@pytest.mark.parametrize(("overdue", "hang_after"), [(True, None), (False, 2.0)])
def test_a_rank_that_works_for_too_long_is_a_hang(overdue, hang_after, tmp_path, monkeypatch):
    judgements = [Judgement(JobState.HUNG, still=9.0, overdue=overdue), Judgement(JobState.HUNG, still=9.2)]
    trace, _ = run_seen_as(judgements, monkeypatch, tmp_path, JobState.SLOW, RunPolicy(hang_after))
    assert trace.timed_out


def test_a_job_that_stands_still_when_it_is_looked_at_is_ended(tmp_path, monkeypatch):
    judgements = [Judgement(JobState.HUNG, still=9.0), Judgement(JobState.HUNG, still=9.2)]
    trace, looks = run_seen_as(judgements, monkeypatch, tmp_path)
    assert looks == [9.0]
    assert trace.timed_out
    assert (tmp_path / "stdout.log").read_text() == ""
    assert (tmp_path / SNAPSHOT).exists()


@pytest.mark.slow
def test_a_rank_whose_variables_change_between_its_sleeps_goes_on(tmp_path):
    line = (sys.executable, str(FORKS), "turns", str(tmp_path))
    (tmp_path / "run").mkdir()
    trace = JobRun(Job(JobKind.LINE, line, RecorderOptions()), Launch(), tmp_path / "run").finish(
        time.monotonic() + 120
    )
    assert (trace.status, trace.timed_out, trace.snapshot) == (0, False, None)
    assert trace.seconds > 10


def test_processes_that_the_kernel_kills_meanwhile_for_their_memory_are_counted(tmp_path, monkeypatch):
    counts = [3, 5]
    monkeypatch.setattr(run, "_oom_kills", lambda: counts.pop(0))
    trace, _ = run_seen_as([], monkeypatch, tmp_path)
    assert trace.oom_kills == 2
