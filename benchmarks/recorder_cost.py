"""What the recorder costs a training step: the same script with and without it, in alternation, at full length.

Wall time on a busy machine says little about microseconds, so each rank also measures the CPU time of its main
thread, which is where the recorder works. The script sleeps nothing: its steps last what ``--width`` makes them
last, and the extra time is compared with the budget at steps of 10 ms.
Run as ``python benchmarks/recorder_cost.py --rounds 5 --steps 1500``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

BUDGET = 0.02
STEP = 0.010
"""Seconds that a step has, of which the recorder may take the budget."""
INJECT = Path(__file__).resolve().parents[1] / "ddpdoctor" / "recorder" / "inject"
SCRIPT = """
import json, sys, time
import torch, torch.distributed as dist, torch.nn as nn, torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

steps, width = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo")
layers = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())]
model = DDP(nn.Sequential(*layers, nn.Dropout(0.1), nn.Linear(width, 10)))
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
data = TensorDataset(torch.randn(3200, width), torch.randint(0, 10, (3200,)))
loader = DataLoader(data, batch_size=16, sampler=DistributedSampler(data))
taken, epoch = 0, 0
began = time.perf_counter(), time.thread_time()
while taken < steps:
    loader.sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        taken += 1
    epoch += 1
ended = time.perf_counter(), time.thread_time()
if dist.get_rank() == 0:
    print(json.dumps({"steps": taken, "wall": ended[0] - began[0], "cpu": ended[1] - began[1]}), flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def measure(script: Path, options: argparse.Namespace, folder: Path | None) -> dict[str, float]:
    """One run; seconds of a step by the clock and of its main thread, and the bytes of the record."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    if folder is not None:
        folder.mkdir()
        environ |= {"DDPDOCTOR_RECORD": str(folder), "DDPDOCTOR_FULL": "1", "PYTHONPATH": str(INJECT)}
    ranks = ["--standalone", "--nproc-per-node", str(options.nproc)]
    command = [sys.executable, "-m", "torch.distributed.run", *ranks, str(script)]
    done = subprocess.run(
        [*command, str(options.steps), str(options.width)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        sys.exit(f"the script ended with {done.returncode}:\n{done.stderr}")
    measured = json.loads(lines[-1])
    written = 0 if folder is None else max(file.stat().st_size for file in folder.iterdir())
    return {
        "wall": measured["wall"] / measured["steps"],
        "cpu": measured["cpu"] / measured["steps"],
        "bytes": written,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Time training steps with and without the recorder.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--nproc", type=int, default=2)
    options = parser.parse_args()
    plain, recorded = [], []
    with tempfile.TemporaryDirectory() as place:
        script = Path(place, "train.py")
        script.write_text(SCRIPT)
        for number in range(options.rounds):
            plain.append(measure(script, options, None))
            recorded.append(measure(script, options, Path(place, str(number))))
    for clock in ("wall", "cpu"):
        before, after = (statistics.median(run[clock] for run in runs) for runs in (plain, recorded))
        extra = statistics.median(r[clock] - p[clock] for p, r in zip(plain, recorded, strict=True))
        print(
            f"{clock:>4}: {before * 1e3:.2f} ms a step, recorded {after * 1e3:.2f} ms, extra {extra * 1e6:.0f} us"
        )
    share = extra / STEP
    print(f"record of one rank: {recorded[-1]['bytes'] / 1e3:.0f} kB")
    print(f"{share:.1%} of a step of {STEP * 1e3:.0f} ms (limit {BUDGET:.0%})")
    sys.exit(share > BUDGET)


if __name__ == "__main__":
    main()
