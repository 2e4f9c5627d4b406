"""The script reads our standard input, as under torchrun."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import SECONDS, environment

READ = "import sys; print('read', sys.stdin.read().split())"
TRAIN = """
import sys
import torch.distributed as dist
dist.init_process_group("gloo")
lines = [None] * dist.get_world_size()
dist.all_gather_object(lines, sys.stdin.readline())
if dist.get_rank() == 0:
    print("read", "".join(lines).split())
dist.destroy_process_group()
"""


def run(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", f'ddpdoctor() {{ {sys.executable} -m ddpdoctor "$@"; }}; {line}'],
        cwd=folder,
        env=environment({}),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("stdin", ["printf 'one\\ntwo\\n' |", "< lines.txt"])
def test_a_launch_line_reads_it(stdin, tmp_path):
    (tmp_path / "lines.txt").write_text("one\ntwo\n")
    (tmp_path / "read.py").write_text(READ)
    command = f"ddpdoctor watch -q -- {sys.executable} read.py"
    done = run(f"{stdin} {command}" if stdin.endswith("|") else f"{command} {stdin}", tmp_path)
    assert "read ['one', 'two']" in done.stdout, done.stderr


def test_a_closed_one_is_empty(tmp_path):
    (tmp_path / "read.py").write_text(READ)
    done = run(f"ddpdoctor watch -q -- {sys.executable} read.py <&-", tmp_path)
    assert "read []" in done.stdout, done.stderr


@pytest.mark.slow
def test_the_ranks_of_a_script_share_it(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    done = run("printf 'one\\n' | ddpdoctor check -q --nproc 2 --select run train.py", tmp_path)
    assert (done.returncode, "read ['one']" in done.stdout + done.stderr) == (0, True), (
        done.stdout + done.stderr
    )
