"""A running job on one screen, as lines, and as metrics."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import SECONDS, ddpdoctor, environment
from tests.support.processes import wait_until

JOB = """
import time, torch, torch.distributed as dist
from pathlib import Path
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
model = DDP(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
while True:
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.03 if dist.get_rank() else 0.002)
    over = torch.tensor([float(Path("over").exists())])
    dist.all_reduce(over)
    if over:
        break
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_a_job_is_shown_while_it_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(JOB)
    command = [sys.executable, "-m", "ddpdoctor", "watch", "--metrics", "job.prom", "--quiet", "--nproc", "2"]
    err = tmp_path / "err.txt"
    with err.open("w") as stderr:
        job = subprocess.Popen([*command, "train.py"], cwd=tmp_path, env=environment({}), stderr=stderr)
    try:
        metrics = tmp_path / "job.prom"
        wait_until(lambda: metrics.exists() and "work_seconds{" in metrics.read_text(), SECONDS)
        once = ddpdoctor("top", "--once", cwd=tmp_path)
        assert once.status == 0, once.err
        assert once.out.startswith("train.py\nstep ")
        assert "slowest rank 1 (own code): works " in once.out
        lines = subprocess.Popen(
            [sys.executable, "-m", "ddpdoctor", "top", "--every", "0.5"],
            cwd=tmp_path,
            env=environment({}),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert lines.stdout
        first = lines.stdout.readline()
        (tmp_path / "over").touch()
        rest, _ = lines.communicate(timeout=SECONDS)
        assert "step " in first
        assert rest.endswith("the job has ended\n")
        assert lines.returncode == 0
        assert job.wait(SECONDS) == 0, err.read_text()
        assert 'ddpdoctor_state{state="over"} 1.0' in metrics.read_text()
    finally:
        if job.poll() is None:
            job.send_signal(signal.SIGTERM)
            job.wait(SECONDS)


def test_without_a_job_it_says_how_to_start_one(tmp_path: Path) -> None:
    done = ddpdoctor("top", str(tmp_path), cwd=tmp_path)
    assert done.status == 2
    assert "has no records" in done.err


def test_metrics_that_cannot_be_written_are_refused_before_the_job_starts(tmp_path: Path) -> None:
    done = ddpdoctor("watch", "--metrics", "no/such.prom", "--", "touch", "started", cwd=tmp_path)
    assert done.status == 2
    assert "--metrics 'no/such.prom' cannot be written" in done.err
    assert not (tmp_path / "started").exists()
