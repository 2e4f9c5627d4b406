"""What ranks are seen to do: by what they say, and by what /proc shows of real processes."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from ddpdoctor.blame.frames import Frame
from ddpdoctor.blame.liveness import Observation, RankActivity
from ddpdoctor.blame.thresholds import LOOK_SECONDS, OUTSIDE_SECONDS
from ddpdoctor.hang.heartbeats import Heartbeat
from ddpdoctor.job.rank_observer import RankObserver
from ddpdoctor.job.record_watch import RecordedProcess

C10D = "/x/site-packages/torch/distributed/distributed_c10d.py"
MAIN = (Frame("main", "/jobs/train.py", 3),)
SAVES = (*MAIN, Frame("save_checkpoint", "/jobs/train.py", 5))
BARRIER = (*MAIN, Frame("barrier", C10D, 9))
CHILD_ENDS = (*MAIN, Frame("wait", "/usr/lib/python3.11/subprocess.py", 9))
SECONDS = 60.0
"""At most, until a busy machine has brought a process where it then stays."""
LONG = 600.0
"""For which a process sleeps; no test takes as long."""
LOCKED = "threading.Event().wait()"
BUSY = "while True: pass"
THREAD = "threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\ntime.sleep(600)"
CHILD = f"subprocess.Popen([sys.executable, '-c', {BUSY!r}])\ntime.sleep(600)"

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
    "sleeps": Case("time.sleep(600)", MAIN, RankActivity.SLEEPS),
    "saves slowly": Case("time.sleep(600)", SAVES, RankActivity.SLEEPS),
    "sleeps in short turns": Case("while True: time.sleep(0.2)", MAIN, RankActivity.SLEEPS),
    "looks for a message again and again": Case(LOOKS, MAIN, RankActivity.WORKS),
    "waits for a child that sleeps": Case(
        "subprocess.run(['sleep', '600'])", CHILD_ENDS, RankActivity.BLOCKED
    ),
    "computes": Case(BUSY, MAIN, RankActivity.WORKS),
    "computes inside of a collective": Case(BUSY, BARRIER, RankActivity.WORKS),
    "has a thread that sends inside of a collective": Case(SENDS, BARRIER, RankActivity.WORKS),
    "spins in NCCL": Case(BUSY, BARRIER, RankActivity.WAITS, "nccl"),
    "has a thread that computes": Case(THREAD, MAIN, RankActivity.WORKS),
    "has a child that computes": Case(CHILD, MAIN, RankActivity.WORKS),
}


@pytest.fixture(scope="module")
def seen() -> dict[str, Observation]:
    """What is seen of each case, its record having said nothing new since it came there."""
    with ExitStack() as started:
        processes = [_start(case.code, started) for case in CASES.values()]
        for process in processes:
            _await_start(process)

        def ranks() -> dict[int, RecordedProcess]:
            return {
                rank: _silent(process.pid, rank, case.stack, case.backend)
                for rank, (process, case) in enumerate(zip(processes, CASES.values(), strict=True))
            }

        expected = {rank: case.activity for rank, case in enumerate(CASES.values())}
        found = _look_until(RankObserver(os.getpid()), ranks, expected)
    return dict(zip(CASES, found.values(), strict=True))


def _look_until(
    observer: RankObserver,
    ranks: Callable[[], dict[int, RecordedProcess]],
    expected: Mapping[int, RankActivity],
    missing: Iterable[int] = (),
) -> dict[int, Observation]:
    """What is seen of each rank at last.

    On a busy machine a process takes seconds to come where it then stays, or to be given a CPU. So they are looked
    at again, for a minute at most, and of each rank the first look counts that shows what is expected.
    """
    found: dict[int, Observation] = {}
    observer.look(time.monotonic(), ranks(), missing)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        looked = observer.look(time.monotonic(), ranks(), missing)
        differ = [rank for rank in looked if rank not in found or found[rank].activity is not expected[rank]]
        found |= {rank: looked[rank] for rank in differ}
        if all(found[rank].activity is activity for rank, activity in expected.items()):
            break
    return dict(sorted(found.items()))


def _silent(pid: int, rank: int, stack: tuple[Frame, ...], backend: str = "gloo") -> RecordedProcess:
    """A rank that has not moved for ten seconds, and says where it is."""
    now = time.monotonic()
    beat = Heartbeat(now, now - 10, stack=stack)
    return RecordedProcess(pid, 1, now - 10, rank, rank, 99, backend=backend, beat=beat)


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


def _await_start(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"


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
        fetches = (Frame("fetch", "/jobs/train.py", 3),)
        code = f"asks = socket.create_connection({server.getsockname()!r})\nwhile asks.recv(1 << 16): pass"
        pid = _start(code, started).pid
        connection = started.enter_context(server.accept()[0])
        observer, end = RankObserver(job), time.monotonic() + SECONDS
        found: tuple[RankActivity, float] | None = None
        while found != expected and time.monotonic() < end:
            time.sleep(0.02)
            connection.send(b"x" if answers else b"")
            observation = observer.look(time.monotonic(), {0: _silent(pid, 0, fetches)}, ())[0]
            found = observation.activity, observation.at_least
    assert found == expected


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
        observer = RankObserver(os.getpid(), tmp_path)
        found = _look_until(observer, lambda: {0: _silent(pid, 0, MAIN)}, {0: RankActivity.BLOCKED})
    assert found[0].activity is RankActivity.BLOCKED


LOOKS_FOR_A_FILE = "while not os.path.exists('/no/such/file'): pass"
TURNS = {
    "looks for a file": (LOOKS_FOR_A_FILE, LOOKS_FOR_A_FILE, RankActivity.SLEEPS, 0.0),
    "gives up some day": (
        LOOKS_FOR_A_FILE,
        "while not os.path.exists('/no/such/file') and time.time() < 10: pass",
        RankActivity.SLEEPS,
        OUTSIDE_SECONDS,
    ),
    "computes": (LOOKS_FOR_A_FILE, "while rest: rest = turn(rest)", RankActivity.WORKS, 0.0),
    "looks for what a thread makes": (
        f"threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\n{LOOKS_FOR_A_FILE}",
        LOOKS_FOR_A_FILE,
        RankActivity.WORKS,
        0.0,
    ),
}
"""What a process does, the line at which it stands, and what is to be seen of it."""


def test_turns_of_a_loop_that_only_looks_are_no_work(tmp_path: Path) -> None:
    with ExitStack() as started:
        ranks = {}
        for number, (code, line, _, _) in enumerate(TURNS.values()):
            file = tmp_path / f"{number}.py"
            file.write_text(f"import os, time\ndef wait(rest, turn):\n    {line}\n")
            ranks[number] = (_start(code, started).pid, (Frame("wait", str(file), 3),))
        expected = {number: activity for number, (_, _, activity, _) in enumerate(TURNS.values())}
        found = _look_until(
            RankObserver(os.getpid()),
            lambda: {number: _silent(pid, number, stack) for number, (pid, stack) in ranks.items()},
            expected,
        )
    assert {number: it.activity for number, it in found.items()} == expected
    assert [it.at_least for it in found.values()] == [seconds for _, _, _, seconds in TURNS.values()]


@pytest.mark.parametrize("name", ["sleeps", "waits for a child that sleeps"])
def test_when_a_sleep_ends(seen: dict[str, Observation], name: str) -> None:
    assert LONG - 2 * SECONDS < seen[name].wakes_in <= LONG


def test_a_rank_that_left_and_one_that_is_not_there() -> None:
    left = RecordedProcess(0, 1, 0.0, 0, 0, 2, ended=True)
    found = RankObserver(guard=1 << 30).look(time.monotonic(), {0: left}, range(2))
    assert {rank: one.activity for rank, one in found.items()} == {
        0: RankActivity.LEFT,
        1: RankActivity.BLOCKED,
    }


def test_a_rank_that_a_framework_gave_a_local_rank_alone_is_seen_before_it_joins() -> None:
    with ExitStack() as started:
        process = _start(BUSY, started, LOCAL_RANK="1")
        _await_start(process)
        observer, works = RankObserver(os.getpid()), {1: RankActivity.WORKS}
        found = _look_until(observer, lambda: {0: _silent(os.getpid(), 0, BARRIER)}, works, range(2))
        assert (observer.unrecorded, found[1].activity) == ({1: process.pid}, RankActivity.WORKS)


LOCK = (Frame("main", "/jobs/train.py", 7), Frame("Semaphore.acquire", "/usr/lib/python3.11/threading.py", 5))


def test_a_rank_that_is_gone_without_a_word_has_vanished_unless_it_had_left_its_process_group() -> None:
    gone = RecordedProcess(1 << 30, 1, 0.0, 0, 0, 2)
    observer = RankObserver(os.getpid())
    assert observer.vanished({0: gone})
    assert not observer.vanished({0: replace(gone, destroyed_group=True)})


@pytest.mark.parametrize(
    ("heard", "moved", "stack", "activity"),
    [
        (0.5, 300, BARRIER, RankActivity.WAITS),
        (0.5, 300, LOCK, RankActivity.BLOCKED),
        (0.5, 3, LOCK, RankActivity.WORKS),  # a shared disk shows what it says some seconds late
        (0.5, 300, MAIN, RankActivity.WORKS),  # nobody sees whether it uses its CPU
        (300, 300, BARRIER, RankActivity.LEFT),
    ],
)
def test_a_rank_on_another_host_is_judged_by_what_it_says(
    heard: float, moved: float, stack: tuple[Frame, ...], activity: RankActivity
) -> None:
    now = time.monotonic()
    beat = Heartbeat(now - heard, now - moved, stack=stack)
    rank = RecordedProcess(os.getpid(), 1, 0.0, 0, 0, 2, backend="gloo", elsewhere=True, beat=beat)
    observer = RankObserver(os.getpid())
    assert observer.look(now, {0: rank}, ()).popitem()[1].activity is activity
    assert not observer.vanished({0: replace(rank, pid=1 << 30)})
    left_group = replace(rank, destroyed_group=True)
    assert observer.look(now, {0: left_group}, ()).popitem()[1].destroyed_group
    here = replace(rank, elsewhere=False, beat=replace(beat, main=False))
    assert observer.look(now, {0: here}, ()).popitem()[1].activity is activity
