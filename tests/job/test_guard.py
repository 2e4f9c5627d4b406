import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ddpdoctor.job.guarded import GUARD, new_run_id
from tests.support.processes import alive, carrying, running_below, wait_until

IGNORES_SIGTERM = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        break
open(f"{sys.argv[1]}/{os.getpid()}.up", "w").close()
time.sleep(600)
"""
DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {forget}
        open(f"{{sys.argv[1]}}/{{os.getpid()}}.up", "w").close()
        time.sleep(600)
    os._exit(0)
{then}
"""
LINGERS = DAEMON.format(forget="", then="time.sleep(600)")
# A daemon whose environment does not show the mark any more: only its descent tells.
FORGETS = DAEMON.format(
    forget="""if "DDPDOCTOR_RUN" in os.environ:
            os.execve(sys.executable, [sys.executable, "-c",
                "import os, sys, time\\nopen(f'{sys.argv[1]}/{os.getpid()}.up', 'w').close()\\ntime.sleep(600)",
                sys.argv[1]], {})""",
    then="",
)


def guard_command(run_id: str, *command: str, grace: float = 0.3, report: Path | None = None) -> list[str]:
    options = ["--run-id", run_id, "--grace", str(grace), *(["--report", str(report)] if report else [])]
    return [sys.executable, "-I", str(GUARD), *options, "--", *command]


def guard(run_id: str, *command: str, **options: object) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(guard_command(run_id, *command, **options), stderr=subprocess.PIPE)


def status_of(process: "subprocess.Popen[bytes]") -> int:
    with process:  # closes its pipe
        return process.wait(60)


def pids_up(folder: Path, count: int) -> list[int]:
    wait_until(lambda: len(list(folder.glob("*.up"))) == count)
    return [int(path.stem) for path in folder.glob("*.up")]


def test_the_exit_status_is_the_commands():
    assert status_of(guard(new_run_id(), "sh", "-c", "exit 7")) == 7


def test_a_signal_is_128_and_its_number():
    assert status_of(guard(new_run_id(), "sh", "-c", "kill -SEGV $$")) == 128 + signal.SIGSEGV


def test_a_command_that_is_not_there_is_127_with_a_message():
    process = guard(new_run_id(), "no-such-command")
    assert process.communicate(timeout=60)[1] == (
        b"guard: no-such-command did not start: No such file or directory\n"
    )
    assert process.returncode == 127


def test_a_file_that_may_not_be_executed_is_126(tmp_path):
    (tmp_path / "plain").write_text("")
    assert status_of(guard(new_run_id(), str(tmp_path / "plain"))) == 126


def test_the_command_carries_the_mark_and_its_own_dashes():
    run_id = new_run_id()
    command = guard_command(run_id, "sh", "-c", 'echo "$DDPDOCTOR_RUN $*"', "sh", "--", "-x")
    assert subprocess.run(command, capture_output=True, check=True, timeout=60).stdout == (
        f"{run_id} -- -x\n".encode()
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_workers_that_ignore_sigterm_in_their_own_sessions_are_gone(tmp_path, number):
    run_id = new_run_id()
    process = guard(run_id, sys.executable, "-c", IGNORES_SIGTERM, str(tmp_path))
    workers = pids_up(tmp_path, 3)
    process.send_signal(number)
    assert status_of(process) == 128 + signal.SIGKILL
    assert not any(map(alive, workers))
    assert not carrying(run_id)


@pytest.mark.parametrize("script", [LINGERS, FORGETS], ids=["marked", "unmarked"])
def test_a_daemon_of_a_stopped_command_is_gone(tmp_path, script):
    process = guard(new_run_id(), sys.executable, "-c", script + "\ntime.sleep(600)", str(tmp_path))
    (daemon,) = pids_up(tmp_path, 1)
    process.terminate()
    assert status_of(process) == 128 + signal.SIGTERM
    assert not alive(daemon)


def test_a_daemon_in_a_pid_namespace_that_has_no_proc_of_its_own(tmp_path):
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace may be made here")
    script, report = DAEMON.format(forget="", then="os.wait()"), tmp_path / "report.json"
    command = guard_command(new_run_id(), sys.executable, "-c", script, str(tmp_path), report=report)
    subprocess.run([*unshare, "sh", "-c", '"$@"; exit $?', "sh", *command], check=True, timeout=60)
    (left,) = json.loads(report.read_text())["left_behind"].values()
    assert str(tmp_path) in left
    assert running_below(tmp_path) == []


def test_what_a_command_leaves_behind_is_killed_and_reported(tmp_path):
    report = tmp_path / "guard.json"
    script = FORGETS + "\nwhile not os.listdir(sys.argv[1]): time.sleep(0.01)"
    process = guard(new_run_id(), sys.executable, "-c", script, str(tmp_path), report=report)
    assert status_of(process) == 0
    (daemon,) = pids_up(tmp_path, 1)
    assert not alive(daemon)
    said = json.loads(report.read_text())
    assert (said["status"], said["stopped"]) == (0, False)
    assert [*said["left_behind"]] == [str(daemon)]


def test_a_helper_that_ends_by_itself_is_not_left_behind(tmp_path):
    report = tmp_path / "guard.json"
    assert status_of(guard(new_run_id(), "sh", "-c", "sleep 0.2 &", grace=10, report=report)) == 0
    assert json.loads(report.read_text()) == {"status": 0, "stopped": False, "left_behind": {}}


def test_no_grace_kills_at_once(tmp_path):
    process = guard(new_run_id(), sys.executable, "-c", IGNORES_SIGTERM, str(tmp_path), grace=0)
    workers = pids_up(tmp_path, 3)
    process.terminate()
    assert status_of(process) == 128 + signal.SIGKILL
    assert not any(map(alive, workers))


def test_a_second_signal_ends_the_grace(tmp_path):
    notes_it = "lambda *_: open(f'{sys.argv[1]}/told', 'w').close()"
    script = IGNORES_SIGTERM.replace("signal.SIG_IGN", notes_it)
    process = guard(new_run_id(), sys.executable, "-c", script, str(tmp_path), grace=600)
    pids_up(tmp_path, 3)
    process.terminate()
    wait_until((tmp_path / "told").exists)  # two signals that come at once are one
    process.terminate()
    assert status_of(process) == 128 + signal.SIGKILL


def test_sigkill_to_the_guards_parent_ends_everything(tmp_path):
    run_id = new_run_id()
    command = guard_command(run_id, sys.executable, "-c", IGNORES_SIGTERM, str(tmp_path))
    parent = subprocess.Popen(
        [sys.executable, "-c", "import subprocess, sys; subprocess.run(sys.argv[1:])", *command]
    )
    workers = pids_up(tmp_path, 3)
    parent.kill()
    parent.wait()
    wait_until(lambda: not carrying(run_id) and not any(map(alive, workers)))


def test_an_orphan_removes_the_folders_of_its_parent_and_no_other_guard_does(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "rank0.jsonl").touch()
    command = guard_command(new_run_id(), "true", report=folder / "guard.json")
    command[command.index("--") : command.index("--")] = ["--if-orphaned", str(folder)]
    subprocess.run(command, check=True)
    assert (folder / "guard.json").exists()
    command[command.index("--") : command.index("--")] = ["--parent", str(os.getpid() + 1)]
    subprocess.run(command, check=False)
    assert not folder.exists()


def test_the_end_of_the_thread_that_started_it_is_not_the_parents_death():
    script = f"""
import subprocess, sys, threading
processes = []
command = {guard_command(new_run_id(), "sh", "-c", "sleep 0.5; exit 5")!r}
thread = threading.Thread(target=lambda: processes.append(subprocess.Popen(command)))
thread.start()
thread.join()
sys.exit(processes[0].wait())
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 5


def test_a_parent_that_died_before_the_start_is_noticed():
    command = guard_command(new_run_id(), "sleep", "600")
    command[command.index("--") : command.index("--")] = ["--parent", str(os.getpid() + 1)]
    assert subprocess.run(command, check=False, timeout=60).returncode == 128 + signal.SIGTERM
