"""What ranks are seen to do: by what they say, and by what /proc shows of real processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.liveness import Observation, RankActivity
from ddpdoctor.blame.thresholds import LOOK_SECONDS, OUTSIDE_SECONDS
from ddpdoctor.hang.heartbeats import Heartbeat
from ddpdoctor.job.rank_observer import RankObserver
from ddpdoctor.job.record_watch import Process

C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"
MAIN = (Frame("main", "/jobs/train.py", 3),)
SAVES = (*MAIN, Frame("save_checkpoint", "/jobs/train.py", 5))
BARRIER = (*MAIN, Frame("barrier", C10D, 9))
CHILD_ENDS = (*MAIN, Frame("wait", "/usr/lib/python3.11/subprocess.py", 9))
LOCKED = "threading.Event().wait()"
BUSY = "while True: pass"
THREAD = "threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\ntime.sleep(99)"
CHILD = f"subprocess.Popen([sys.executable, '-c', {BUSY!r}])\ntime.sleep(99)"

SENDS = """
def send():
    ends = os.pipe()
    while True:
        os.write(ends[1], bytes(32768))
        os.read(ends[0], 32768)
        time.sleep(0.05)
threading.Thread(target=send).start()
threading.Event().wait()"""
LOOKS = """
queue = queue.Queue()
while True:
    try: queue.get(timeout=0.02)
    except Exception: pass"""


class Case(NamedTuple):
    """A rank, and what is to be seen of it."""

    code: str
    stack: tuple[Frame, ...]
    activity: RankActivity
    backend: str = "gloo"


CASES = {
    "in a collective": Case(LOCKED, BARRIER, RankActivity.WAITS),
    "in a lock": Case(LOCKED, MAIN, RankActivity.BLOCKED),
    "sleeps": Case("time.sleep(50)", MAIN, RankActivity.SLEEPS),
    "saves slowly": Case("time.sleep(30)", SAVES, RankActivity.SLEEPS),
    "sleeps in short turns": Case("while True: time.sleep(0.2)", MAIN, RankActivity.SLEEPS),
    "looks for a message again and again": Case(LOOKS, MAIN, RankActivity.WORKS),
    "waits for a child that sleeps": Case(
        "subprocess.run(['sleep', '50'])", CHILD_ENDS, RankActivity.BLOCKED
    ),
    "computes": Case(BUSY, MAIN, RankActivity.WORKS),
    "computes inside of a collective": Case(BUSY, BARRIER, RankActivity.WORKS),
    "has a thread that sends inside of a collective": Case(SENDS, BARRIER, RankActivity.WORKS),
    "spins in NCCL": Case(BUSY, BARRIER, RankActivity.WAITS, "nccl"),
    "has a thread that computes": Case(THREAD, MAIN, RankActivity.WORKS),
    "has a child that computes": Case(CHILD, MAIN, RankActivity.WORKS),
}


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Observation]]:
    """What is seen of each case after two looks, its record having said nothing new since it came there."""
    with ExitStack() as started:
        processes = [_start(case.code, started) for case in CASES.values()]
        for one in processes:
            assert one.stdout is not None
            assert one.stdout.readline() == b"up\n"
        pids = [one.pid for one in processes]
        observer, began = RankObserver(os.getpid()), time.monotonic() - 10
        for pause in (1.0, LOOK_SECONDS):
            time.sleep(pause)
            beats = [Heartbeat(time.monotonic(), began, stack=case.stack) for case in CASES.values()]
            ranks = {
                rank: Process(pid, 1, began, rank, rank, 99, backend=case.backend, beat=beat)
                for rank, (pid, case, beat) in enumerate(zip(pids, CASES.values(), beats, strict=True))
            }
            found = observer.look(time.monotonic(), ranks, ())
        yield dict(zip(CASES, found.values(), strict=True))


def _start(code: str, started: ExitStack, **environ: str) -> "subprocess.Popen[bytes]":
    up = "import os, queue, socket, subprocess, sys, threading, time\nprint('up', flush=True)"
    command = [sys.executable, "-c", f"{up}\n{code}"]
    process = started.enter_context(
        subprocess.Popen(
            command, stdout=subprocess.PIPE, start_new_session=True, env={**os.environ, **environ}
        )
    )
    started.callback(os.killpg, process.pid, signal.SIGKILL)
    return process


@pytest.mark.parametrize("name", CASES)
def test_what_a_rank_does(seen: dict[str, Observation], name: str) -> None:
    assert seen[name].activity is CASES[name].activity


@pytest.mark.parametrize(
    ("job", "answers", "expected"),
    [
        (1 << 30, False, (RankActivity.BLOCKED, OUTSIDE_SECONDS)),
        (1 << 30, True, (RankActivity.WORKS, 0.0)),
        (os.getpid(), False, (RankActivity.BLOCKED, 0.0)),
    ],
    ids=["a server that is silent", "one that sends little by little", "a process of the job"],
)
def test_a_rank_that_reads_from_a_connection(
    job: int, answers: bool, expected: tuple[RankActivity, float]
) -> None:
    with ExitStack() as started:
        server = started.enter_context(socket.create_server(("127.0.0.1", 0)))
        code = f"asks = socket.create_connection({server.getsockname()!r})\nwhile asks.recv(1 << 16): pass"
        pid = _start(code, started).pid
        connection = started.enter_context(server.accept()[0])
        observer, began = RankObserver(job), time.monotonic() - 10
        for _ in range(int(2.5 * LOOK_SECONDS / 0.02)):
            time.sleep(0.02)
            connection.send(b"x" if answers else b"")
            beat = Heartbeat(time.monotonic(), began, stack=(Frame("fetch", "/jobs/train.py", 3),))
            rank = Process(pid, 1, began, 0, 0, 1, backend="gloo", beat=beat)
            seen = observer.look(time.monotonic(), {0: rank}, ())[0]
    assert (seen.activity, seen.at_least) == expected


def test_the_recorders_own_thread_in_a_worker_is_no_work(tmp_path: Path) -> None:
    code = (
        f"import json, threading\ndef beat():\n    with open({str(tmp_path / '1-0.now')!r}, 'w') as now:\n"
        "        said = {'t': 0, 'moved': 0, 'thread': threading.get_native_id(), 'at': None, 'stack': []}\n"
        "        json.dump(said, now)\n    while True: pass\n"
        "threading.Thread(target=beat, daemon=True).start()\nthreading.Event().wait()"
    )
    with ExitStack() as started:
        pid = _start(f"subprocess.run([sys.executable, '-c', {code!r}])", started).pid
        while not list(tmp_path.glob("*.now")):
            time.sleep(0.1)
        observer, began = RankObserver(os.getpid(), tmp_path), time.monotonic() - 10
        for _ in range(2):
            time.sleep(LOOK_SECONDS)
            beat = Heartbeat(time.monotonic(), began, stack=MAIN)
            rank = Process(pid, 1, began, 0, 0, 1, backend="gloo", beat=beat)
            found = observer.look(time.monotonic(), {0: rank}, ())
    assert found[0].activity is RankActivity.BLOCKED


@pytest.mark.parametrize("name", ["sleeps", "waits for a child that sleeps"])
def test_when_a_sleep_ends(seen: dict[str, Observation], name: str) -> None:
    assert seen[name].wakes_in == pytest.approx(35, abs=15)


def test_a_rank_that_left_and_one_that_is_not_there() -> None:
    left = Process(0, 1, 0.0, 0, 0, 2, ended=True)
    found = RankObserver(guard=1 << 30).look(time.monotonic(), {0: left}, range(2))
    assert {rank: one.activity for rank, one in found.items()} == {
        0: RankActivity.LEFT,
        1: RankActivity.BLOCKED,
    }


def test_a_rank_that_a_framework_gave_a_local_rank_alone_is_seen_before_it_joins() -> None:
    with ExitStack() as started:
        process = _start(BUSY, started, LOCAL_RANK="1")
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        observer, began = RankObserver(os.getpid()), time.monotonic() - 10
        first = Process(
            os.getpid(), 1, began, 0, 0, 2, beat=Heartbeat(time.monotonic(), began, stack=BARRIER)
        )
        for pause in (1.0, LOOK_SECONDS):
            time.sleep(pause)
            found = observer.look(time.monotonic(), {0: first}, range(2))
        assert (observer.unrecorded, found[1].activity) == ({1: process.pid}, RankActivity.WORKS)
