"""A running healthy job that somebody looks at goes on as if nobody had."""

import contextlib
import os
import signal
import subprocess
import sys

import psutil
import pytest

from ddpdoctor.blame.liveness import JobState, snapshot_state
from ddpdoctor.hang.capture import capture
from tests.support.command import SECONDS

pytestmark = pytest.mark.slow

ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
HEALTHY = """\
import hashlib, os, sys, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def train(rank, store):
    dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/{store}", rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    os.write(1, b"here\\n")  # whole, where print writes the end of the line by itself
    for step in range(600):
        optimizer.zero_grad()
        model(torch.randn(16, 64)).pow(2).sum().backward()
        optimizer.step()
        time.sleep(0.01)
    digest = hashlib.sha256(str([p.tolist() for p in model.parameters()]).encode()).hexdigest()
    open(f"{store}.{rank}", "w").write(digest)
    dist.destroy_process_group()

def run(store):
    ranks = []
    for rank in range(2):
        ranks.append(os.fork())
        if ranks[-1] == 0:
            train(rank, store)
            os._exit(0)
    return ranks

ranks = run("looked-at") + run("left-alone")
sys.exit(any(os.waitpid(one, 0)[1] for one in ranks))
"""


def test_a_healthy_job_that_is_looked_at_trains_to_the_same_weights(tmp_path):
    (tmp_path / "train.py").write_text(HEALTHY)
    command = [sys.executable, "train.py"]
    job = subprocess.Popen(
        command, cwd=tmp_path, env=ONE_THREAD, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert job.stdout is not None
        assert [job.stdout.readline() for _ in range(4)] == [b"here\n"] * 4
        ranks = sorted(psutil.Process(job.pid).children(), key=lambda one: one.pid)
        looked = capture({one.pid: rank for rank, one in enumerate(ranks[:2])}, looks=3)
        assert snapshot_state(looked) is JobState.MOVES
        assert job.wait(SECONDS) == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
        job.stdout.close()
    digests = {one.read_text() for one in tmp_path.glob("l*.[01]")}
    assert len(digests) == 1
