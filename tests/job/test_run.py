"""What a run does about a job that seems to have stopped."""

import sys
import time

from ddpdoctor.job import run
from ddpdoctor.job.command import Job, Kind
from ddpdoctor.job.patience import Opinion, State
from ddpdoctor.job.remains import STANDSTILL
from ddpdoctor.job.run import JobRun
from ddpdoctor.job.supervise import Supervisor
from ddpdoctor.plan import Plan
from ddpdoctor.recorder.options import RecorderOptions


def run_seen_as(opinions, monkeypatch, folder):
    """The trace of a job of one second of which these opinions come first, and when it was looked at closely."""
    looks = []

    class Scripted(Supervisor):
        def look(self):
            return opinions.pop(0) if opinions else Opinion(State.FINE)

        def capture(self, folder, still):
            looks.append(still)
            (folder / STANDSTILL).mkdir()

    monkeypatch.setattr(run, "Supervisor", Scripted)
    line = (sys.executable, "-c", "import time; time.sleep(1); print('to the end')")
    job = JobRun(Job(Kind.LINE, line, RecorderOptions()), Plan(), folder)
    return job.finish(time.monotonic() + 60), looks


def test_a_job_that_moves_while_it_is_looked_at_goes_on(tmp_path, monkeypatch):
    opinions = [Opinion(State.HUNG, still=9.0), Opinion(State.FINE, still=0.1)]
    trace, looks = run_seen_as(opinions, monkeypatch, tmp_path)
    assert looks == [9.0]
    assert (trace.status, trace.timed_out, trace.standstill) == (0, False, None)
    assert (tmp_path / "stdout.log").read_text() == "to the end\n"
    assert not (tmp_path / STANDSTILL).exists()


def test_a_job_that_stands_still_when_it_is_looked_at_is_ended(tmp_path, monkeypatch):
    opinions = [Opinion(State.HUNG, still=9.0), Opinion(State.HUNG, still=9.2)]
    trace, looks = run_seen_as(opinions, monkeypatch, tmp_path)
    assert looks == [9.0]
    assert trace.timed_out
    assert (tmp_path / "stdout.log").read_text() == ""
    assert (tmp_path / STANDSTILL).exists()
