"""What befalls jobs of days: clocks that jump, disks that fill, logs that rotate. The job goes on as without watch."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import ddpdoctor

pytestmark = pytest.mark.slow

JOB = """
import logging, logging.handlers, os, time, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DDP(torch.nn.Linear(4, 1))
torch.manual_seed(1 + rank)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
log = logging.getLogger("training")
log.addHandler(logging.handlers.RotatingFileHandler(f"rank{{rank}}.log", maxBytes=900, backupCount=2))
for step in range(300):
    {often}
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    log.warning("step %d", step)
    if rank == 0 and step % 50 == 0:
        print("step", step, flush=True)
dist.destroy_process_group()
"""
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
STEPS = [f"step {step}" for step in range(0, 300, 50)]
CLOCK = "time.time = lambda real=time.clock_gettime: real(0) + (0, 36_000, -72_000)[step % 3]"
FULL = """
    if step == 100 and rank == 0:
        with open(os.path.join(os.environ["TMPDIR"], "other"), "wb", buffering=0) as other:
            try:
                while True:
                    other.write(b"x" * 65536)
            except OSError:
                print("full", flush=True)
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.parametrize("often", ["pass", CLOCK], ids=["logs that rotate", "clocks that jump"])
def test_the_job_is_as_without_it(often: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(JOB.format(often=often))
    done = ddpdoctor("watch", "--", *LAUNCH, cwd=tmp_path)
    assert done.status == 0, done.err + done.out
    assert [line for line in done.out.splitlines() if line.startswith("step ")] == STEPS
    assert "FAIL[" not in done.out
    for rank in range(2):
        logs = sorted(path.name for path in tmp_path.glob(f"rank{rank}.log*"))
        assert logs == [f"rank{rank}.log", f"rank{rank}.log.1", f"rank{rank}.log.2"]
        assert (tmp_path / logs[0]).read_text().endswith("step 299\n")


@pytest.mark.root
def test_a_disk_that_fills_below_the_records_ends_no_job(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "train.py").write_text(JOB.format(often=FULL.strip()))
    done = ddpdoctor("watch", "--", *LAUNCH, cwd=tmp_path, env={"TMPDIR": str(small_disk)})
    assert (tmp_path / "rank0.log").read_text().endswith("step 299\n"), done.err
