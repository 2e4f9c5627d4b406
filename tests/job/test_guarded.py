import os
import signal
import sys

from ddpdoctor.job.guarded import Running, new_run_id, start
from tests.support.processes import carrying, wait_until


def started(tmp_path, *command: str, run_id: str = "", grace: float = 0.3) -> Running:
    return start(
        command,
        folder=tmp_path,
        run_id=run_id or new_run_id(),
        environ=os.environ,
        grace=grace,
        stdout=tmp_path / "out",
        stderr=tmp_path / "err",
    )


def test_output_goes_to_files_and_the_ending_is_told(tmp_path):
    ending = started(tmp_path, "sh", "-c", "echo good; echo bad >&2; exit 3").wait(60)
    assert ending is not None
    assert (ending.status, ending.stopped, ending.left_behind) == (3, False, {})
    assert (tmp_path / "out").read_text() == "good\n"
    assert (tmp_path / "err").read_text() == "bad\n"


def test_a_signal_is_a_negative_status(tmp_path):
    ending = started(tmp_path, "sh", "-c", "kill -ABRT $$").wait(60)
    assert ending is not None
    assert ending.status == -signal.SIGABRT


def test_it_runs_until_it_is_stopped(tmp_path):
    run_id = new_run_id()
    with started(tmp_path, sys.executable, "-c", "import time; time.sleep(600)", run_id=run_id) as running:
        assert running.poll() is None
        assert running.wait(0.1) is None
    ending = running.poll()
    assert ending is not None
    assert (ending.status, ending.stopped) == (-signal.SIGTERM, True)
    assert not carrying(run_id)


def test_it_is_stopped_before_it_began(tmp_path):
    running = started(tmp_path, sys.executable, "-c", "import time; time.sleep(600)")
    ending = running.stop()  # before the guard listens for signals, as a rule
    assert (ending.status, ending.stopped) == (-signal.SIGTERM, True)


def test_the_end_of_the_guard_itself_leaves_nothing(tmp_path):
    run_id = new_run_id()
    running = started(tmp_path, sys.executable, "-c", "import time; time.sleep(600)", run_id=run_id)
    wait_until(lambda: bool(carrying(run_id)))
    os.kill(running.pid, signal.SIGKILL)
    ending = running.wait(60)
    assert ending is not None
    assert ending.status == -signal.SIGKILL
    assert not carrying(run_id)


def test_what_is_left_behind_is_named(tmp_path):
    ending = started(tmp_path, "sh", "-c", "sleep 600 &").wait(60)
    assert ending is not None
    assert [*ending.left_behind.values()] == ["sleep 600"]


def test_a_command_that_is_not_there(tmp_path):
    ending = started(tmp_path, "no-such-command").wait(60)
    assert ending is not None
    assert ending.status == 127
    assert "no-such-command did not start" in (tmp_path / "err").read_text()
