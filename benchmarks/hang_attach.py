"""How long ``ddpdoctor hang`` halts the ranks of a running job, so that it can look at them.

The ranks never sleep, so the time in which one neither runs nor queues for a CPU is the time for which it was halted;
the kernel counts both. On a busy machine py-spy itself queues for a CPU while it holds a rank.
Run as ``python benchmarks/hang_attach.py --rounds 5``.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from limits import tell

from ddpdoctor.hang.capture import capture

SECONDS = 3.0
TRAINS = """
import torch
torch.set_num_threads(1)
def main():
    model, optimizer = torch.nn.Linear(64, 64), None
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    print("here", flush=True)
    for step in range(10**9):
        optimizer.zero_grad()
        model(torch.randn(16, 64)).pow(2).sum().backward()
        optimizer.step()
main()
"""


def halted(pids: Sequence[int], action: Callable[[], object]) -> list[float]:
    """For how long each process neither ran nor could have run while something was done."""
    before = [(time.monotonic(), *_counted(pid)) for pid in pids]
    action()
    after = [(time.monotonic(), *_counted(pid)) for pid in pids]
    return [
        (then - now) - (ran_then - ran) - (queued_then - queued)
        for (now, ran, queued), (then, ran_then, queued_then) in zip(before, after, strict=True)
    ]


def _counted(pid: int) -> tuple[float, float]:
    ran, queued, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran) / 1e9, int(queued) / 1e9


def measure(options: argparse.Namespace) -> list[float]:
    """How long the slowest rank was halted by each look, less what the same time without a look shows."""
    ranks = [
        subprocess.Popen([sys.executable, "-c", TRAINS], stdout=subprocess.PIPE) for _ in range(options.nproc)
    ]
    try:
        for rank in ranks:
            assert rank.stdout is not None
            rank.stdout.readline()
        pids = [rank.pid for rank in ranks]
        seconds = []
        for _ in range(options.rounds):
            alone = max(halted(pids, lambda: time.sleep(SECONDS)))
            seconds.append(max(halted(pids, lambda: capture(dict.fromkeys(pids)))) - max(alone, 0.0))
        return seconds
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description="Time for how long ddpdoctor hang halts ranks.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nproc", type=int, default=2)
    options = parser.parse_args()
    seconds = measure(options)
    listing = ", ".join(f"{each * 1e3:.0f}" for each in sorted(seconds))
    print(f"halted for {listing} ms by one look at the job")
    median, worst = 1e3 * statistics.median(seconds), 1e3 * max(seconds)
    sys.exit(tell("halt", median, of=f"{options.nproc} ranks", spread=f"to {worst:.0f}"))


if __name__ == "__main__":
    main()
