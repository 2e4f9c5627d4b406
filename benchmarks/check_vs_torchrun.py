"""``ddpdoctor check`` against torchrun: a bare all-reduce, and a training script, which runs whole in both.

    python benchmarks/check_vs_torchrun.py [--rounds 7] [--nproc 4]

The commands run in alternation, so that a machine that is busy for a while is busy for all of them. Each is timed as a
whole process. Host and group are left out of the check of the script, as they have a line of their own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from limits import tell

ALL_REDUCE = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
assert total.item() == dist.get_world_size()
dist.destroy_process_group()
"""
TRAIN = """
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(20000, 256), torch.randint(0, 10, (20000,)))
train = DistributedSampler(data)
model = DistributedDataParallel(nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)), nn.Linear(256, 10)))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    train.set_epoch(epoch)
    loader = DataLoader(data, 64, sampler=train)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.barrier()
dist.destroy_process_group()
"""
OURS = {
    "host and group": ("group", "all-reduce", 0.0),
    "everything": ("check", "all-reduce", 0.0),
    "the script": ("script", "plain script", 1.0),
}
"""What is measured: the limit, its base, and how many seconds more it may take."""


def commands(nproc: int) -> dict[str, list[str]]:
    """What is compared: the bases, and our own by the names of OURS."""
    ranks = ["--nproc-per-node", str(nproc)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", *ranks]
    check = [sys.executable, "-m", "ddpdoctor", "check", *ranks, "--backend", "gloo", "--quiet"]
    return {
        "all-reduce": [*torchrun, "all_reduce.py"],
        "plain script": [*torchrun, "train.py"],
        "host and group": [*check, "--select", "host,group"],
        "everything": check,
        "the script": [*check, "--ignore", "host,group", "train.py"],
    }


def seconds(command: list[str], folder: str, *, status_matters: bool) -> float:
    """One run of a command as a whole process.

    A base may abort after its script's end, which correct gloo programs do now and then.
    """
    begin = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if status_matters and done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description="Time `ddpdoctor check` against torchrun.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--nproc", type=int, default=4)
    options = parser.parse_args()
    taken: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "all_reduce.py").write_text(ALL_REDUCE)
        Path(folder, "train.py").write_text(TRAIN)
        for number in range(options.rounds + 1):  # the first fills caches and is not counted
            for name, command in commands(options.nproc).items():
                elapsed = seconds(command, folder, status_matters=name in OURS)
                if number:
                    taken.setdefault(name, []).append(elapsed)
    medians = {name: statistics.median(values) for name, values in taken.items()}
    print(f"{options.nproc} ranks, gloo, {options.rounds} rounds in alternation; medians of whole processes")
    for name, median in medians.items():
        print(f"{name:<16}{median:6.2f} s")
    for name, (limit, base, more) in OURS.items():
        pairs = zip(taken[name], taken[base], strict=True)
        ratios = sorted((ours - more) / theirs for ours, theirs in pairs)
        tell(limit, statistics.median(ratios), spread=f"{ratios[0]:.2f}-{ratios[-1]:.2f}")


if __name__ == "__main__":
    main()
