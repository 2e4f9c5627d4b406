"""``ddpdoctor check`` with its defaults on a script of slow steps: what CI waits for, and what comes within it.

    python benchmarks/slow_steps.py [--seconds 1.0] [--nproc 2]

The script would take seven minutes by itself where a step takes a second: two epochs of 100 steps with an evaluation of
each, and a checkpoint. Limit: 60 s to the report, with both epochs, both evaluations and the checkpoint in it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from limits import tell

SCRIPT = """
import sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(400 * dist.get_world_size(), 8))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (x,) in loader:
        time.sleep(float(sys.argv[1]))
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    loss = torch.zeros(1)
    with torch.no_grad():
        for (x,) in loader:
            time.sleep(float(sys.argv[1]))
            loss += model.module(x).square().sum()
    dist.all_reduce(loss)
    print("evaluated", epoch)
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "model.pt")
    print("saved")
dist.barrier()
dist.destroy_process_group()
"""


def measure(seconds: float, nproc: int) -> tuple[float, str]:
    """How long the command took, and what the run did not come to."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(SCRIPT)
        command = [sys.executable, "-m", "ddpdoctor", "check", "--nproc", str(nproc), "--format", "json"]
        began = time.monotonic()
        done = subprocess.run(
            [*command, "--output", "report.json", "train.py", str(seconds)],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.monotonic() - began
        report = Path(folder, "report.json")
        run = json.loads(report.read_text())["run"] if report.exists() else {}
    lacking = [word for word in ("evaluated 0", "evaluated 1", "saved") if word not in done.stdout]
    print(f"  {run.get('trained')}, lacking: {lacking or 'nothing'}")
    return took, ", ".join(lacking)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1.0, help="of a step")
    parser.add_argument("--nproc", type=int, default=2)
    options = parser.parse_args()
    took, lacking = measure(options.seconds, options.nproc)
    missed = tell("slow_steps", took, of=f"steps of {options.seconds:g} s")
    sys.exit(missed or bool(lacking))


if __name__ == "__main__":
    main()
