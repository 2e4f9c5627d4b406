"""``ddpdoctor check`` on a script against the script itself, cut to the same batches by its own hand.

    python benchmarks/check_script.py [--rounds 5] [--nproc 2]

The commands run in alternation, each timed as a whole process: torchrun on a script that ends each pass after eight
batches, and the check of the same script that does not. Limit: 1.3 times as long, and 2 s. Host and group are left
out, as they have a benchmark of their own.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SCRIPT = """
import itertools, sys, torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
batches = int(sys.argv[1]) if len(sys.argv) > 1 else None
torch.manual_seed(0)
data = TensorDataset(torch.randn(20000, 256), torch.randint(0, 10, (20000,)))
train = DistributedSampler(data)
model = DistributedDataParallel(nn.Sequential(*(nn.Linear(256, 256) for _ in range(8)), nn.Linear(256, 10)))
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(3):
    train.set_epoch(epoch)
    loader = DataLoader(data, 64, sampler=train)
    for x, y in itertools.islice(loader, batches) if batches else loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), "model.pt")
    dist.barrier()
dist.destroy_process_group()
"""
FACTOR, SECONDS = 1.3, 2.0


def main() -> None:
    """Time both and print the comparison."""
    options = _parse()
    with tempfile.TemporaryDirectory() as place:
        Path(place, "train.py").write_text(SCRIPT)
        ranks = ["--nproc-per-node", str(options.nproc)]
        plain = [sys.executable, "-m", "torch.distributed.run", "--standalone", *ranks, "train.py", "8"]
        check = [
            sys.executable,
            "-m",
            "ddpdoctor",
            "check",
            *ranks,
            "--ignore",
            "host,group",
            "-q",
            "train.py",
        ]
        times: dict[str, list[float]] = {"plain": [], "check": []}
        for _ in range(options.rounds):
            times["plain"].append(_timed(plain, place))
            times["check"].append(_timed(check, place))
    alone, checked = (statistics.median(times[name]) for name in ("plain", "check"))
    print(f"{options.nproc} ranks, {options.rounds} rounds in alternation; medians of whole processes")
    print(f"torchrun, 8 batches a pass   {alone:6.2f} s")
    limit = FACTOR * alone + SECONDS
    print(
        f"ddpdoctor check, the same    {checked:6.2f} s   limit {limit:.2f} s ({FACTOR} x + {SECONDS:.0f} s)"
    )
    print(f"                             {(checked - SECONDS) / alone:6.2f} x after {SECONDS:.0f} s")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nproc", type=int, default=2)
    return parser.parse_args()


def _timed(command: list[str], folder: str) -> float:
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        output = done.stderr[-2000:] + done.stdout
        raise SystemExit(f"{' '.join(command)} ended with status {done.returncode}:\n{output}")
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
