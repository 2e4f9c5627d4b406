"""Whatever ends a check, nothing of it is left: no process, no run folder of a healthy run, no shared memory."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import faults
from tests.support.command import SECONDS, check, environment, free_port
from tests.support.processes import carrying

pytestmark = pytest.mark.slow

PATIENCE = 240.0
"""Generous; how fast it really is, benchmarks/ctrl_c.py measures."""
MARK = "DDPDOCTOR_TEST"


def ours(mark: str) -> list[int]:
    """The live processes that inherited this test's mark, the command itself among them."""
    return carrying(mark, MARK)


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def has_begun(temporary: Path) -> bool:
    return any(b"all_reduce" in events.read_bytes() for events in temporary.rglob("rank1.jsonl"))


@pytest.fixture
def stuck_check(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A check whose rank 1 hangs and ignores SIGTERM, at the moment when its ranks are up."""
    mark = f"{os.getpid()}-{request.node.name}"
    site = faults.break_torch(tmp_path / "site", faults.IGNORING_SIGTERM)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    env = environment({**site, MARK: mark, "TMPDIR": str(temporary)})
    arguments = [
        "check",
        "--nproc",
        "2",
        "--select",
        "host,group",
        "--master-port",
        str(free_port()),
        "--quiet",
    ]
    command = [sys.executable, "-m", "ddpdoctor", *arguments]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        wait_until(lambda: has_begun(temporary), SECONDS, "the ranks did not come up")
        yield process
        wait_until(lambda: not ours(mark), PATIENCE, f"left behind: {ours(mark)}")
    finally:
        for left in ours(mark):
            os.kill(left, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 130), (signal.SIGHUP, 130)]
)
def test_a_signal_ends_everything(
    stuck_check: subprocess.Popen[bytes], number: signal.Signals, status: int, tmp_path: Path
) -> None:
    stuck_check.send_signal(number)
    _, err = stuck_check.communicate(timeout=PATIENCE)
    assert stuck_check.returncode == status
    assert err.decode() == "ddpdoctor: stopped; no process of it is left running\n"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_sigkill_to_the_command_itself(stuck_check: subprocess.Popen[bytes], tmp_path: Path) -> None:
    stuck_check.kill()
    assert stuck_check.wait(PATIENCE) == -signal.SIGKILL
    wait_until(lambda: not any((tmp_path / "tmp").iterdir()), PATIENCE, "the run's folders are left")


def test_a_healthy_check_leaves_nothing(tmp_path: Path) -> None:
    temporary, memory = tmp_path / "tmp", set(os.listdir("/dev/shm"))  # noqa: PTH208
    temporary.mkdir()
    done = check("--nproc", "2", cwd=tmp_path, env={"TMPDIR": str(temporary), MARK: str(tmp_path)})
    assert done.status == 0, done.out
    assert ours(str(tmp_path)) == []
    assert list(temporary.iterdir()) == []
    made = set(os.listdir("/dev/shm")) - memory  # noqa: PTH208
    # What other tests have there goes away with them.
    wait_until(lambda: made.isdisjoint(os.listdir("/dev/shm")), SECONDS, f"shared memory: {made}")  # noqa: PTH208
    assert list(tmp_path.iterdir()) == [temporary]


def test_a_pid_namespace_without_its_own_proc(tmp_path: Path) -> None:
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace may be made here")
    arguments = [
        "check",
        "--nproc",
        "2",
        "--select",
        "group",
        "--master-port",
        str(free_port()),
        "--format",
        "json",
    ]
    command = [*unshare, sys.executable, "-m", "ddpdoctor", *arguments]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment({}), capture_output=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout
