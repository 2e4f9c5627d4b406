"""What `ddpdoctor watch` costs a healthy run: steps per second with and without it, in alternation.

Both runs go through the same launch line, and rank 0 times its training loop. On a machine that has other work the
clock says more of that than of the watch; what its own thread takes of the CPU, which is where training pays, says it
there, too: the extra is compared with steps of 10 ms.
Run as ``python benchmarks/watch_cost.py --rounds 5 --steps 1500``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGET = 0.02
STEP = 0.010
"""Seconds that a step has, of which the watch may take the budget."""
SCRIPT = """
import json, sys, time
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

steps, width = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DDP(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(3200, width), torch.randint(0, 10, (3200,)))
loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data))
taken, epoch, began, cpu = 0, 0, time.perf_counter(), time.thread_time()
while taken < steps:
    loader.sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        taken += 1
    epoch += 1
if dist.get_rank() == 0:
    wall, cpu = time.perf_counter() - began, time.thread_time() - cpu
    print(json.dumps({"steps": taken, "wall": wall, "cpu": cpu}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def measure(launch: list[str], *, watched: bool) -> dict[str, float]:
    """One run; seconds of a step by the clock and of its main thread, and CPU seconds of all processes."""
    own = [sys.executable, "-m", "ddpdoctor", "watch", "--quiet", "--ignore", "performance", "--"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [*own, *launch] if watched else launch
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.exit(f"it ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    told = json.loads(lines[-1])
    every = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": told["wall"] / told["steps"], "cpu": told["cpu"] / told["steps"], "all": every}


def main() -> None:
    parser = argparse.ArgumentParser(description="Time training steps with and without ddpdoctor watch.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--nproc", type=int, default=1)
    options = parser.parse_args()
    plain, watched = [], []
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, "train.py")
        script.write_text(SCRIPT)
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        arguments = [f"--nproc-per-node={options.nproc}", str(script), str(options.steps), str(options.width)]
        for _ in range(options.rounds):
            plain.append(measure([*torchrun, *arguments], watched=False))
            watched.append(measure([*torchrun, *arguments], watched=True))
    for clock in ("wall", "cpu"):
        before, after = (statistics.median(one[clock] for one in runs) for runs in (plain, watched))
        extra = statistics.median(w[clock] - p[clock] for p, w in zip(plain, watched, strict=True))
        print(
            f"{clock:>4}: {before * 1e3:.2f} ms a step, watched {after * 1e3:.2f} ms, extra {extra * 1e6:.0f} us"
        )
    every = statistics.median(w["all"] - p["all"] for p, w in zip(plain, watched, strict=True))
    print(f"all processes, start and report included: {every:+.1f} s of CPU")
    print(f"{extra / STEP:+.1%} of a step of {STEP * 1e3:.0f} ms (limit {BUDGET:.0%})")
    sys.exit(extra / STEP > BUDGET)


if __name__ == "__main__":
    main()
