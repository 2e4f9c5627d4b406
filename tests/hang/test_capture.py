"""What is seen of live processes: where each is, what it does and in which call."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpdoctor.blame.hang_snapshot import Doing, HangSnapshot, ProcessRole, SampledProcess
from ddpdoctor.hang import stacks
from ddpdoctor.hang.attach import rank_in_stack
from ddpdoctor.hang.capture import capture
from tests.support.processes import alive, wait_until

STATES = {
    "sleeps": "time.sleep(1000)",
    "a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "a pipe": "os.read(os.pipe()[0], 1)",
    "a poll": "ends = os.pipe(); polled = select.poll(); polled.register(ends[0]); polled.poll()",
    "a child": "subprocess.run(['sleep', '1000'])",
    "spins": "while True: pass",
    "counts": "for number in range(10**9): time.sleep(0.001)",
    "stopped": "time.sleep(1000)",
    "gone": "sys.exit()",
}
SLEEP = {"clock_nanosleep", "select"}
"""How Python 3.11 sleeps, and how 3.10 does."""
EXPECTED = {
    "sleeps": (Doing.SLEEPS, SLEEP),
    "a lock": (Doing.WAITS, {"futex"}),
    "a pipe": (Doing.WAITS, {"read of a pipe"}),
    "a poll": (Doing.WAITS, {"poll of a pipe"}),
    "spins": (Doing.COMPUTES, {""}),
    "stopped": (Doing.STOPPED, {"", *SLEEP}),
    "gone": (Doing.GONE, {""}),
}
"""What some of them do, and in which call."""
PROGRAM = """\
import os, select, subprocess, sys, threading, time
def stand():
    print("here", flush=True)
    {}
stand()
"""


def as_expected(taken: HangSnapshot) -> bool:
    """Whether each process does what it was started for."""
    by_name = {name: taken.ranks[rank] for rank, name in enumerate(STATES)}
    settled = [
        by_name[name].doing is doing and by_name[name].call in calls
        for name, (doing, calls) in EXPECTED.items()
    ]
    return all(settled) and by_name["counts"].changes


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> Iterator[tuple[HangSnapshot, dict[str, SampledProcess]]]:
    """All states at once, and the process of each."""
    folder = tmp_path_factory.mktemp("states")
    started = {}
    for name, body in STATES.items():
        (folder / f"{name}.py").write_text(PROGRAM.format(body))
        command = [sys.executable, str(folder / f"{name}.py")]
        started[name] = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        for one in started.values():
            assert one.stdout is not None
            assert one.stdout.readline() == b"here\n"
        wait_until(lambda: capture({started["stopped"].pid: 0}, looks=1).ranks[0].call in SLEEP)
        started["stopped"].send_signal(signal.SIGSTOP)
        started["gone"].wait(60)
        wait_until(lambda: capture({started["a child"].pid: 0}, looks=1).processes[1:])
        pids = {one.pid: rank for rank, one in enumerate(started.values())}
        taken = capture(pids)
        end = time.monotonic() + 60
        # On a busy machine it takes a while until each is where it then stays, or gets a CPU.
        while not as_expected(taken) and time.monotonic() < end:
            taken = capture(pids)
        assert all(alive(one.pid) for name, one in started.items() if name != "gone")
        started["spins"].kill()  # leaves its CPU to the tests
        yield taken, {name: taken.ranks[rank] for rank, name in enumerate(started)}
    finally:
        for one in started.values():
            if one.poll() is None:
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
            one.stdout.close()


@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_process_does(seen, name):
    one, (doing, calls) = seen[1][name], EXPECTED[name]
    assert one.doing is doing
    assert one.call in calls
    assert one.stands == (doing not in (Doing.COMPUTES, Doing.GONE))


@pytest.mark.parametrize("name", ["sleeps", "a lock", "a pipe", "stopped"])
def test_where_it_is(seen, name):
    one = seen[1][name]
    assert [(frame.function, frame.line) for frame in one.stack] == [("<module>", 5), ("stand", 4)]
    assert Path(one.stack[-1].file).name == f"{name}.py"
    assert one.again == one.stack


def test_native_frames_below_its_own(seen):
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        pytest.skip("py-spy unwinds native stacks on x86-64 only")
    assert any("sleep" in name for name in seen[1]["sleeps"].native)


def test_what_a_rank_has_started_is_its_worker(seen):
    taken, by_name = seen
    (worker,) = (one for one in taken.processes if one.role is ProcessRole.WORKER)
    assert (worker.rank, worker.command, worker.doing) == (
        by_name["a child"].rank,
        "sleep 1000",
        Doing.SLEEPS,
    )
    assert by_name["a child"].call == f"wait4 for process {worker.pid}"
    assert (worker.stack, worker.unseen) == ((), "")


def test_a_script_that_goes_on_changes_its_variables(seen):
    one = seen[1]["counts"]
    assert one.changes
    assert not one.stands


def test_why_there_is_no_stack(seen, monkeypatch):
    refused = subprocess.CompletedProcess(
        [], 1, "", "Error: Permission Denied: Try running again with elevated rights"
    )
    monkeypatch.setattr(stacks.subprocess, "run", lambda *arguments, **options: refused)
    monkeypatch.setattr(stacks, "PTRACE_SCOPE", Path("/nowhere"))
    one = capture({seen[1]["a lock"].pid: 0}).ranks[0]
    assert (
        one.unseen == "ptrace is not allowed: run as the same user, in a container with --cap-add SYS_PTRACE"
    )
    assert (one.doing, one.call, one.stack) == (Doing.WAITS, "futex", ())


def local(name: str, value: str, argument: bool = True) -> dict[str, object]:
    return {"name": name, "repr": value, "arg": argument}


@pytest.mark.parametrize(
    ("frames", "rank"),
    [
        ([("f", "t.py", [local("x", "1")]), ("train", "t.py", [local("rank", "2")])], 2),
        (
            [
                ("train", "t.py", [local("gpu", "0")]),
                ("_wrap", "torch/multiprocessing/spawn.py", [local("i", "3")]),
            ],
            3,
        ),
        ([("inner", "t.py", [local("rank", "5")]), ("train", "t.py", [local("rank", "2")])], 2),
        ([("train", "t.py", [local("rank", "2", argument=False)])], None),
        ([("train", "t.py", [local("rank", "<Tensor at 0x7f>")])], None),
        ([("train", "t.py", None)], None),
    ],
)
def test_the_rank_that_a_function_was_given(frames, rank):
    assert (
        rank_in_stack([{"name": name, "filename": file, "locals": held} for name, file, held in frames])
        == rank
    )
