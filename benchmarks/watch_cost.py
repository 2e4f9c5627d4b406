"""What `ddpdoctor watch` costs a healthy run: steps per second with and without it, side by side.

The same job runs twice at the same time, each on a CPU of its own, one of them watched; then they change places. So
whatever else the machine does befalls both alike, and all that the watch does, also in its own process, is done on
the CPU of the job that it watches, also where `--nproc` ranks share it. Rank 0 of each times its training steps.
Run as ``python benchmarks/watch_cost.py --rounds 6 --steps 2000``; ``--width 640`` for steps of about 6.5 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from limits import tell

SCRIPT = """
import json, sys, time
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

steps, width = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
torch.manual_seed(0)
dist.init_process_group("gloo")
model = DDP(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.randn(3200, width), torch.randint(0, 10, (3200,)))
loader = DataLoader(data, batch_size=64, sampler=DistributedSampler(data))
taken, epoch, ends, cpu = 0, 0, [time.perf_counter()], time.thread_time()
while taken < steps:
    loader.sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        taken += 1
        ends.append(time.perf_counter())
    epoch += 1
if dist.get_rank() == 0:
    cpu, steps = time.thread_time() - cpu, sorted(end - begin for begin, end in zip(ends, ends[1:]))
    values = {"mean": (ends[-1] - ends[0]) / taken, "median": steps[taken // 2], "cpu": cpu / taken}
    print(json.dumps(values), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def start(launch: list[str], cpu: int, *, watched: bool) -> subprocess.Popen[str]:
    """Begin one run on one CPU."""
    watch = [sys.executable, "-m", "ddpdoctor", "watch", "--quiet", "--ignore", "performance", "--"]
    command = ["taskset", "--cpu-list", str(cpu), *(watch if watched else []), *launch]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environ, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(run: subprocess.Popen[str]) -> dict[str, float]:
    """Seconds of a step of a run: by the clock, on average and the median, and of the CPU in its main thread."""
    output, _ = run.communicate()
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if run.returncode or not lines:
        sys.exit(f"it ended with {run.returncode}:\n{output}")
    measured: dict[str, float] = json.loads(lines[-1])
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description="Time training steps with and without ddpdoctor watch.")
    parser.add_argument(
        "--rounds", type=int, default=6, help="even, so that each has had each CPU equally often"
    )
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--nproc", type=int, default=1, help="ranks of each job, which share its CPU")
    parser.add_argument("--width", type=int, default=896)
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("this needs two CPUs")
    extra: dict[str, list[float]] = {"mean": [], "median": [], "cpu": []}
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, "train.py")
        script.write_text(SCRIPT)
        launch = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            f"--nproc-per-node={options.nproc}",
        ]
        launch += [str(script), str(options.steps), str(options.width)]
        for number in range(options.rounds):
            first, second = cpus[:2] if number % 2 else cpus[1::-1]
            runs = start(launch, first, watched=False), start(launch, second, watched=True)
            plain, watched = (finish(run) for run in runs)
            for clock, values in extra.items():
                values.append(watched[clock] / plain[clock] - 1)
            line = (
                f"plain {plain['mean'] * 1e3:.2f} ms a step, median {plain['median'] * 1e3:.2f} ms; watched"
            )
            print(line, *(f"{values[-1]:+.1%} {clock}" for clock, values in extra.items()), flush=True)
    for clock, values in extra.items():
        low, high = interval(values)
        print(f"{clock:>6}: {statistics.median(values):+.1%}, {low:+.1%} to {high:+.1%} with 95 % confidence")
    low, high = interval(extra["mean"])
    spread = f"{100 * low:+.1f} to {100 * high:+.1f}"
    sys.exit(tell("watch", 100 * statistics.median(extra["mean"]), spread=spread))


def interval(values: list[float]) -> tuple[float, float]:
    """That holds the median of the pairs with 95 % confidence, by drawing them anew."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(1000))
    return medians[25], medians[-26]


if __name__ == "__main__":
    main()
