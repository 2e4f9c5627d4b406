import json
import signal
import subprocess
import sys

import pytest

from tests.support.command import SECONDS, ddpdoctor, environment, in_process
from tests.support.processes import running_below, wait_until


@pytest.mark.slow
def test_a_quick_benchmark_measures_everything_and_leaves_nothing(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    asked = ("bench", "--nproc", "2", "--quick", "--backend", "gloo", "--format", "json", "--quiet")
    done = ddpdoctor(*asked, cwd=tmp_path, env={"TMPDIR": str(temporary)})
    assert done.status == 0, done.err
    told = json.loads(done.out)
    assert [row["ranks"] for row in told["weak"]] == [1, 2]
    assert all(row["step"]["low"] <= row["step"]["median"] <= row["step"]["high"] for row in told["weak"])
    assert all(row["steps"] >= 8 for row in told["weak"])
    assert {row["operation"] for row in told["collectives"]} == {
        "all_reduce", "all_gather", "reduce_scatter", "broadcast",
    }  # fmt: skip
    assert all(row["bus_bandwidth"] > 0 for row in told["collectives"] if row["seconds"])
    assert told["limit"].endswith(".")
    assert list(temporary.iterdir()) == []


@pytest.mark.slow
def test_ctrl_c_ends_it_and_leaves_nothing(tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "ddpdoctor", "bench", "--nproc", "2", "--backend", "gloo"]
    env = environment({"TMPDIR": str(temporary)})
    with subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: list(temporary.glob("*/*/rank0.jsonl")), SECONDS)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert err.endswith("ddpdoctor: stopped; no process of it is left running\n")
    assert running_below(temporary) == []
    assert list(temporary.iterdir()) == []


BROKEN = """
import os
if os.environ.get("DDPDOCTOR_RUN"):
    import torch.distributed as dist
    def refuse(*arguments, **options):
        {instead}
    dist.init_process_group = refuse
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instead", "expected"),
    [
        (
            'raise RuntimeError("no route to \\x1b[31mhost\\nand more")',
            "RuntimeError: no route to \\x1b[31mhost",
        ),
        ("os.kill(os.getpid(), 9)", "signal 9 ended it"),
    ],
    ids=["an exception", "a signal"],
)
def test_a_rank_that_fails_is_named_in_one_line(tmp_path, instead, expected):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BROKEN.format(instead=instead))
    path = {"PYTHONPATH": str(tmp_path / "site")}
    done = ddpdoctor("bench", "--nproc", "2", "--quick", "-q", cwd=tmp_path, env=path)
    assert done.status == 2
    where = "rank 0 of 1 rank failed, joining the group"
    assert done.err == f"ddpdoctor: error: {where}: {expected}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--nproc", "0"], "0 is less than 1"),
        (["--batch-size", "0"], "'--batch-size': 0 is less than 1"),
        (["--width", "30"], "--width 30 is not a multiple of 4"),
        (["--backend", "mpi"], "--backend mpi is neither gloo nor nccl"),
        pytest.param(
            ["--timeout", "0.1", "--quick"],
            "the time limit of 0.1 s was reached: importing torch",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_cannot_be_is_one_line(tmp_path, arguments, expected):
    done = in_process("bench", *arguments, "-q", cwd=tmp_path)
    assert done.status == 2
    assert expected in done.err
    assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
