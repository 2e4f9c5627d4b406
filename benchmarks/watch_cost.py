"""What `ddpdoctor watch` costs a healthy run: steps per second with and without it, side by side.

The same job runs twice at the same time, each on a CPU of its own, one of them watched; then they change places. So
whatever else the machine does befalls both alike, and all that the watch does, also in its own process, is done on
the CPU of the job that it watches, also where `--nproc` ranks share it. Rank 0 of each times its training steps.
Run as ``python benchmarks/watch_cost.py --rounds 6 --steps 2000``; ``--width 640`` for steps of about 6.5 ms.

The time of the CPU is that of all threads of rank 0, and of the processes above it: the launcher, the guard and the
command. On a machine with other work to do it says more than the clock does, and most with short steps, of which what
is added is no small part: ``--width 64 --cpu`` compares that with a hundredth of 10 ms.
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

_OF_SECONDS = 0.01
"""A step of which the added CPU time is told as a share."""
SCRIPT = """
import json, os, sys, time
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


def cpu():
    total, process = time.process_time(), os.getppid()
    while process > 1:
        with open(f"/proc/{process}/stat") as file:
            _, parent, *rest = file.read().rpartition(") ")[2].split()
        total += sum(map(int, rest[9:11])) / os.sysconf("SC_CLK_TCK")
        process = int(parent)
    return total


taken, epoch, ends, spent = 0, 0, [time.perf_counter()], [cpu()]
while taken < steps:
    loader.sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        taken += 1
        ends.append(time.perf_counter())
        if taken == steps // 2 or taken == steps:
            spent.append(cpu())
    epoch += 1
if dist.get_rank() == 0:
    walls = sorted(end - begin for begin, end in zip(ends, ends[1:]))
    values = {"mean": (ends[-1] - ends[0]) / taken, "median": walls[taken // 2]}
    values |= {"cpu": (spent[2] - spent[0]) / taken, "late cpu": (spent[2] - spent[1]) / (taken - steps // 2)}
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
    """Seconds of a step of a run: by the clock, on average and the median, and of the CPU, of all and of the second
    half of the steps.
    """
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
    parser.add_argument(
        "--cpu", action="store_true", help="tell the CPU time that is added, in hundredths of 10 ms"
    )
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("this needs two CPUs")
    extra: dict[str, list[float]] = {name: [] for name in ("mean", "median", "cpu", "late cpu")}
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
                added = watched[clock] - plain[clock]
                values.append(added / (_OF_SECONDS if options.cpu else plain[clock]))
            line = (
                f"plain {plain['mean'] * 1e3:.2f} ms a step, median {plain['median'] * 1e3:.2f} ms; watched"
            )
            print(line, *(f"{values[-1]:+.1%} {clock}" for clock, values in extra.items()), flush=True)
    for clock, values in extra.items():
        low, high = interval(values)
        print(f"{clock:>6}: {statistics.median(values):+.1%}, {low:+.1%} to {high:+.1%} with 95 % confidence")
    told = extra["cpu" if options.cpu else "mean"]
    low, high = interval(told)
    spread = f"{100 * low:+.1f} to {100 * high:+.1f}"
    sys.exit(tell("watch", 100 * statistics.median(told), spread=spread))


def interval(values: list[float]) -> tuple[float, float]:
    """That holds the median of the pairs with 95 % confidence, by drawing them anew."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(1000))
    return medians[25], medians[-26]


if __name__ == "__main__":
    main()
