import json

import pytest

from tests.support.logs import explained, log, raised, summary

RICH = """\
╭─────────────────── Traceback (most recent call last) ────────────────────╮
│ /home/user/train.py:12 in main                                            │
│                                                                           │
│ ❱ 12     step()                                                           │
╰───────────────────────────────────────────────────────────────────────────╯
ValueError: bad sample
"""
PLAIN = """\
Traceback (most recent call last):
  File "/home/user/train.py", line 12, in main
    step()
    ^^^^^^
ValueError: bad sample
"""


def prefixed(prefix: str, text: str = PLAIN) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        (PLAIN, None),
        (RICH, None),
        (prefixed("[rank3]: "), 3),
        (prefixed("[default3]:[rank11]: "), 11),
        (prefixed("3: "), 3),
        (prefixed(" 3: "), 3),
        (prefixed("[1,3]<stderr>:"), 3),
        (prefixed("[1,mpirank:3,algo-1]<stderr>:"), 3),
        (prefixed("2026-01-02T03:04:05.123456789Z stderr F "), None),
        (prefixed("2026-01-02T03:04:05.123Z [rank3]: "), 3),
        (prefixed("704.7s\t1344\t[rank3]: "), 3),
        (prefixed("(RayTrainWorker pid=312, ip=10.0.0.2) "), None),
        (prefixed("(EngineCore_DP0 pid=312) ERROR "), None),
        (prefixed("ERROR 04-17 19:02:44 worker_base.py:574] "), None),
        (prefixed("worker-1: "), None),
        (prefixed("trainer_1  | "), None),
        (prefixed("[trainer3|0]:"), 3),
        (prefixed("Jan  2 03:04:05 node-a torchrun[312]: [rank3]: "), 3),
        (prefixed("[2026-11-20 11:39:58] [rank3]: "), 3),
        (prefixed("Nov 20 11:39:58 node-a python3.11[7]: "), None),
        (prefixed("[80746] [rank3]: "), 3),
        (prefixed("train.nolog [stderr] [rank3]: "), 3),
        (prefixed("    "), None),
        (prefixed("\x1b[31m[rank3]:\x1b[0m "), 3),
        (PLAIN.replace("\n", "\r\n"), None),
    ],
)
def test_prefixes(text, rank):
    (raised,) = log(text).raised
    assert (raised.kind, raised.message.strip(), raised.rank) == ("ValueError", "bad sample", rank)
    assert raised.where is not None
    assert (raised.where.file, raised.where.line) == ("/home/user/train.py", 12)


@pytest.mark.parametrize(
    "last",
    ["queue.Empty", "torch.cuda.OutOfMemoryError: no", "MyOwnProblem: no", "subprocess.TimeoutExpired: no"],
)
def test_names_of_exceptions(last):
    (raised,) = log(PLAIN.replace("ValueError: bad sample", last)).raised
    assert raised.text == last


@pytest.mark.parametrize("line", ["Epoch: 3", "loss: 0.3", "Note: see above", "NCCL WARN x", "INFO: done"])
def test_a_line_between_is_no_exception(line):
    (raised,) = log(PLAIN.replace("ValueError", f"{line}\nValueError")).raised
    assert raised.kind == "ValueError"


def test_a_chain_is_one_exception():
    text = f"{PLAIN}\nDuring handling of the above exception, another exception occurred:\n\n{PLAIN}"
    (raised,) = log(text.replace("bad sample", "worse", 1)).raised
    assert (raised.message, raised.cause.message, raised.root.message) == (
        "bad sample",
        "worse",
        "bad sample",
    )


def test_a_message_of_several_lines_ends_where_the_log_goes_on():
    text = f"{PLAIN}Parameter indices: 1 2\nW0102 03:04:05 1 api.py:900] Sending process 12 closing signal SIGTERM\n"
    assert log(text).raised[0].message == "bad sample\nParameter indices: 1 2"


def test_what_a_workers_exception_says_of_the_worker_is_left_out():
    text = PLAIN.replace(
        "bad sample", "Caught ValueError in DataLoader worker process 0.\nOriginal " + PLAIN.rstrip()
    )
    (raised,) = log(text).raised
    assert raised.message == "bad sample"


def test_an_abort_of_native_code():
    (raised,) = log(
        "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [x] bad\n"
    ).raised
    assert raised.text == "gloo.EnforceNotMet: [x] bad"


def test_an_exception_that_python_ignores_is_none():
    assert log(f"Exception ignored in: <function __del__ at 0x7f>\n{PLAIN}").raised == ()
    assert len(log(f"Exception ignored in: <function __del__ at 0x7f>\n{PLAIN}{PLAIN}").raised) == 1


def test_a_frame_of_the_recorder_is_not_the_scripts():
    ours = (
        '  File "/src/ddpdoctor/recorder/patches/groups.py", line 33, in init_process_group\n    original()\n'
    )
    (raised,) = log(PLAIN.replace("ValueError", f"{ours}ValueError")).raised
    assert raised.where is not None
    assert raised.where.file == "/home/user/train.py"


def test_a_launchers_own_program_is_not_the_script():
    (known,) = log(PLAIN.replace("/home/user/train.py", "/opt/venv/bin/torchrun")).raised
    assert known.where is None


def test_a_rank_that_was_spawned():
    text = "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 2 terminated with the following error:\n"
    known = log(text + PLAIN).raised[-1]
    assert (known.kind, known.rank) == ("ValueError", 2)


@pytest.mark.parametrize(
    "text",
    [
        "".join(json.dumps({"log": f"{line}\n", "stream": "stderr"}) + "\n" for line in PLAIN.splitlines()),
        json.dumps({"level": "error", "exc_info": PLAIN}) + "\n",
    ],
)
def test_tracebacks_inside_of_json(text):
    known = log(text).raised[-1]
    assert (known.kind, known.message.strip()) == ("ValueError", "bad sample")
    assert known.where is not None


def test_an_exception_that_its_rank_has_survived_to_the_end():
    text = "[rank0]: step 1 loss 2.0\n" + prefixed("[rank0]: ")
    assert log(text + "[rank0]: training done\n").raised[0].survived
    assert not log(text + "job done\n").raised[0].survived


def test_an_exception_without_a_message_is_known_by_its_rank():
    text = PLAIN.replace("ValueError: bad sample", "Unlucky")
    assert [one.kind for one in log(prefixed("[rank3]: ", text)).raised] == ["Unlucky"]
    assert log(text).raised == ()


@pytest.mark.parametrize("key", ["message", "textPayload"])
def test_a_traceback_in_any_text_of_json(key):
    known = log(json.dumps({"severity": "ERROR", key: PLAIN, "logger": "fit"}) + "\n").raised[-1]
    assert (known.kind, known.message.strip(), known.where is None) == ("ValueError", "bad sample", False)


def test_a_traceback_that_is_quoted_in_json_once_more_is_read_without_harm():
    assert log(json.dumps({"message": json.dumps({"text": PLAIN})}) + "\n").raised == ()


def test_a_traceback_in_a_launchers_summary_has_its_rank():
    lines = PLAIN.splitlines()
    told = "".join(f"  {line}\n" for line in lines[1:])
    text = summary(2, traceback=f"{lines[0]}\n{told}") + PLAIN
    assert [(one.kind, one.rank) for one in log(text).raised[-2:]] == [
        ("ValueError", 2),
        ("ValueError", None),
    ]
    assert [one.rank for one in log(summary(2) + summary(3, pid=101) + PLAIN).raised][-1] is None


def test_an_exception_without_a_prefix_is_of_the_only_rank_that_failed():
    (finding,) = explained(PLAIN + summary(2))
    assert (finding.headline, finding.ranks) == ("rank 2 failed with ValueError 'bad sample'", (2,))
    assert explained(PLAIN + raised(3, "KeyError", "'x'") + summary(2))[0].ranks == ()


def test_an_output_that_ends_in_a_traceback_is_no_healthy_one():
    (finding,) = explained(
        '[rank3]: Traceback (most recent call last):\n[rank3]:   File "/a.py", line 1, in f\n'
    )
    assert (finding.code, finding.ranks) == ("DD312", (3,))


def test_the_exception_in_a_group_is_the_cause():
    inner = "".join(f"    | {line}\n" for line in PLAIN.splitlines())
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        '  |   File "/home/user/train.py", line 99, in <module>\n'
        "  |     asyncio.run(main())\n"
        "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
        f"  +-+---------------- 1 ----------------\n{inner}    +------------------------------------\n"
    )
    (finding,) = explained(text)
    assert finding.headline == "a process failed with ValueError 'bad sample'"


def test_a_child_that_its_parent_left_without_work_is_a_victim():
    child = (
        'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n'
        '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 122, in spawn_main\n    _main()\n'
        '  File "/usr/lib/python3.11/multiprocessing/spawn.py", line 132, in _main\n    load()\n'
        "EOFError: Ran out of input\n"
    )
    for text in (child + PLAIN, PLAIN + child):
        (finding,) = explained(text)
        assert finding.headline == "a process failed with ValueError 'bad sample'"


def test_the_end_of_a_thread_that_lost_its_worker_is_no_failure():
    thread = PLAIN.replace(
        "most recent call last):\n",
        'most recent call last):\n  File "/usr/lib/python3.11/threading.py", line 1045, in _bootstrap_inner\n',
    )
    assert (
        explained(thread.replace("ValueError: bad sample", "ConnectionResetError: Connection reset by peer"))
        == ()
    )
    assert explained(thread)[0].code == "DD304"


FAULT = """\
Fatal Python error: Segmentation fault

Thread 0x00007f1a (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
  File "/home/user/logger.py", line 9 in run

Current thread 0x00007f1b (most recent call first):
  File "/usr/lib/python3/dist-packages/decoder/reader.py", line 175 in get_batch
  File "/home/user/data.py", line 88 in __getitem__
  File "/home/user/train.py", line 301 in main

Extension modules: numpy._core._multiarray_umath (total: 93)
"""


def test_a_fault_is_told_at_the_line_that_called_native_code() -> None:
    [finding] = explained(FAULT)
    assert (finding.code, finding.where and str(finding.where)) == (
        "DD012",
        "/home/user/data.py:88",
    )
    assert "get_batch (decoder/reader.py:175): another version of decoder" in finding.fix


def test_stacks_that_a_timer_printed_are_no_fault() -> None:
    stacks = FAULT.replace("Fatal Python error: Segmentation fault", "Timeout (0:10:00)!")
    assert not log(stacks).faults
    assert not [it for it in explained(stacks) if it.code == "DD012"]


def test_without_a_stack_a_fault_has_no_line() -> None:
    [finding] = explained(FAULT.split("\n\n", 1)[0] + "\n")
    assert (finding.code, finding.where) == ("DD012", None)
    assert "PYTHONFAULTHANDLER" in finding.fix
