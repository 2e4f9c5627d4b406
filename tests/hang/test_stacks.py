import subprocess

import pytest

from ddpdoctor.hang import stacks
from ddpdoctor.hang.stacks import StacksUnavailable, take_stacks


@pytest.mark.parametrize("backtrace", ["", "\nStack backtrace:\n   0: py_spy::main\n   9: main\n"])
def test_what_py_spy_complains_of_is_told_without_its_backtrace(monkeypatch, backtrace):
    complaint = f"Error: Failed to suspend process\nReason: the process does not stop\n{backtrace}"
    failed = subprocess.CompletedProcess([], 1, "", complaint)
    monkeypatch.setattr(stacks, "py_spy", lambda: "py-spy")
    monkeypatch.setattr(stacks.subprocess, "run", lambda *arguments, **options: failed)
    why = take_stacks([7])[7]
    assert isinstance(why, StacksUnavailable)
    assert str(why) == "Reason: the process does not stop"


def frame(function, file, **variables):
    values = [{"name": name, "arg": True, "repr": text} for name, text in variables.items()]
    return {"name": function, "filename": file, "line": 1, "locals": values}


@pytest.mark.parametrize(
    ("arguments", "peer"),
    [
        ({"src": "3", "group": "None"}, 3),
        ({"dst": "None", "group": "None", "group_dst": "0"}, 0),
        ({"dst": "None", "group": "<ProcessGroup at 0x7f>", "group_dst": "0"}, None),
        ({"async_op": "False", "group": "None"}, None),
    ],
)
def test_the_rank_that_a_call_names(arguments, peer):
    script = frame("main", "train.py", src="7")
    call = frame("gather", "/lib/site-packages/torch/distributed/distributed_c10d.py", **arguments)
    inner = frame("broadcast", "/lib/site-packages/torch/distributed/distributed_c10d.py")
    assert stacks.peer_of([inner, call, script]) == peer


@pytest.mark.parametrize(("waits", "moves"), [("result", True), ("acquire", False)])
def test_a_rank_that_waits_for_its_pool_goes_on_as_its_threads_do(monkeypatch, waits, moves):
    """Of one that waits for a lock, nobody knows which thread will release it."""
    library = "/usr/lib/python3.11"
    calls = {"result": f"{library}/concurrent/futures/_base.py", "acquire": f"{library}/logging/__init__.py"}
    waiting = [
        frame("wait", f"{library}/threading.py"),
        frame(waits, calls[waits]),
        frame("main", "train.py"),
    ]

    def values(number):
        pool = [frame("download", "train.py", i=number), frame("run", f"{library}/threading.py")]
        threads = [{"os_thread_id": 8, "frames": pool}, {"os_thread_id": 7, "frames": waiting}]
        monkeypatch.setattr(stacks, "dump", lambda *arguments: threads)
        return stacks.look_into([7])[7].values

    assert (values("1") != values("2")) is moves


RAY = "/venv/lib/python3.11/site-packages/ray/_private"
MAIN_OF_RAY = [
    frame("main_loop", f"{RAY}/worker.py"),
    frame("<module>", f"{RAY}/workers/default_worker.py"),
]
TRAINS = [
    frame("all_reduce", "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"),
    frame("loop", "/home/user/train.py"),
    frame("_bootstrap", "/usr/lib/python3.11/threading.py"),
]
FLUSHES = [frame("run", "/usr/lib/python3.11/threading.py")]


@pytest.mark.parametrize(
    ("main", "trains"),
    [
        (MAIN_OF_RAY, True),
        ([frame("join", "/usr/lib/python3.11/threading.py"), frame("<module>", "/home/user/main.py")], False),
        ([frame("_shutdown", "/usr/lib/python3.11/threading.py")], False),
        ([], False),
    ],
)
def test_of_a_program_of_a_package_the_thread_that_runs_the_script_counts(main, trains):
    threads = [
        {"os_thread_id": 9, "frames": FLUSHES},
        {"os_thread_id": 7, "frames": main},
        {"os_thread_id": 8, "frames": TRAINS},
    ]
    assert stacks.main_thread(threads, 7) == (TRAINS if trains else main)


def test_one_that_runs_no_script_is_seen_as_it_is():
    threads = [{"os_thread_id": 9, "frames": FLUSHES}, {"os_thread_id": 7, "frames": MAIN_OF_RAY}]
    assert stacks.main_thread(threads, 7) == MAIN_OF_RAY


def test_native_frames_are_those_of_the_same_thread(monkeypatch):
    native = {"name": "futex_wait", "filename": "", "line": 0, "module": "libc.so.6"}
    start = {"name": "_start", "filename": "", "line": 0, "module": "python3.11"}
    threads = [
        {"os_thread_id": 7, "frames": [*MAIN_OF_RAY, start]},
        {"os_thread_id": 8, "frames": [native, *TRAINS, start]},
    ]
    monkeypatch.setattr(stacks, "dump", lambda *arguments: threads)
    assert stacks.take_native([7]) == {7: ("futex_wait (libc.so.6)",)}
    assert stacks.look_into([7])[7].number == 8
