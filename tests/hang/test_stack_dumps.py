"""Stacks that py-spy and torch.distributed.debug's server wrote as text."""

import json
import os
from pathlib import Path

from ddpdoctor.blame.hang_snapshot import Doing, ProcessRole
from ddpdoctor.hang.stacks import looks_like_stacks, read_stacks
from tests.support.command import in_process

TORCH = "/venv/lib/python3.11/site-packages/torch"
IN_ALL_REDUCE = f"""\
Thread 0x00007f14f68286c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Current thread 0x00007f14f0000000 (most recent call first):
  <no Python frame>

Thread 0x00007f14f73e2b80 (most recent call first):
  File "{TORCH}/distributed/distributed_c10d.py", line 2950 in all_reduce
  File "{TORCH}/distributed/c10d_logger.py", line 81 in wrapper
  File "/job/train.py", line 40 in evaluate
  File "/job/train.py", line 60 in <module>
"""
IN_A_LOCK = """\
Thread 0x00007f14f73e2b80 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/usr/lib/python3.11/threading.py", line 629 in wait
  File "/job/train.py", line 33 in save
  File "/job/train.py", line 61 in <module>
"""
PY_SPY = """\
Process 71: python train.py
Python v3.11.4 (/usr/bin/python3.11)

Thread 80 (active): "Thread-1"
    run (threading.py:982)
Thread 71 (idle): "MainThread"
    Condition.wait (threading.py:327)
    Event.wait (threading.py:629)
    save (train.py:33)
    <module> (train.py:61)
"""


def served(*ranks: str) -> str:
    return "\n".join(f"=== Rank {i}: http://node{i}:70{i} ===\n{text}" for i, text in enumerate(ranks))


def test_the_servers_dump_names_the_rank_that_never_came(tmp_path: Path) -> None:
    (tmp_path / "stacks_20261128_010203.txt").write_text(served(IN_ALL_REDUCE, IN_A_LOCK, IN_ALL_REDUCE))
    (tmp_path / "tcpstore_20261128_010203.txt").write_text("key: b'1'\n")
    for command in ("hang", "explain"):
        done = in_process(command, str(tmp_path), "--format", "json", cwd=tmp_path)
        (finding,) = done.report["findings"]
        assert finding["ranks"] == [1], finding
        assert (finding["where"]["file"], finding["where"]["line"]) == ("/job/train.py", 33)
        assert "all_reduce" in json.dumps(finding)


def test_a_rank_that_did_not_answer_is_told(tmp_path: Path) -> None:
    file = tmp_path / "stacks_1.txt"
    file.write_text(
        "PARTIAL DATA: 1/2 workers responded\n  Rank 1: Timeout\n\n" + served(IN_ALL_REDUCE, "Error: 408")
    )
    snapshot = read_stacks([file])
    assert list(snapshot.ranks) == [0]
    assert snapshot.world_size == 2
    assert snapshot.unseen == ("rank 1: the debug server got no stack of it: Error: 408",)


def test_an_older_dump_tells_whether_a_rank_stands(tmp_path: Path) -> None:
    older, newer = tmp_path / "stacks_1.txt", tmp_path / "stacks_2.txt"
    older.write_text(served(IN_ALL_REDUCE, IN_A_LOCK))
    newer.write_text(served(IN_ALL_REDUCE, IN_ALL_REDUCE))
    os.utime(older, (1, 1))
    ranks = read_stacks([newer, older]).ranks
    assert ranks[0].stands
    assert not ranks[1].stands
    assert ranks[1].stack[-1].function == "all_reduce"


def test_py_spys_text_of_a_rank_and_its_worker(tmp_path: Path) -> None:
    file = tmp_path / "pyspy_rank_3.txt"
    file.write_text(PY_SPY + PY_SPY.replace("71", "72"))
    rank, worker = read_stacks([file]).processes
    assert (rank.rank, rank.pid, rank.doing, rank.role) == (3, 71, Doing.WAITS, ProcessRole.RANK)
    assert [frame.function for frame in rank.stack] == ["<module>", "save", "Event.wait", "Condition.wait"]
    assert (worker.pid, worker.role) == (72, ProcessRole.WORKER)


def test_what_is_no_stack_is_left_to_others(tmp_path: Path) -> None:
    for number, text in enumerate(
        ("", "epoch 1\n", "Process 71 ended\n", "=== Rank of teams ===\n", "Thread 0x12\n")
    ):
        file = tmp_path / f"{number}.txt"
        file.write_text(text)
        assert not looks_like_stacks(file), text
