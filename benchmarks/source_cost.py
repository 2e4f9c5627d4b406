"""Time and memory of ``check --no-run`` on files of 100, 1,000 and 10,000 lines, and on a package of 100 files.

The files repeat a trainer with an evaluation, a checkpoint and an early stop, each time under other names.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from limits import tell

HEAD = """\
import os
import time
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler
"""
PART = """

class Net{n}(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


class Trainer{n}:
    def __init__(self, data, epochs):
        self.rank = dist.get_rank()
        self.epochs, self.best, self.bad = epochs, 1e9, 0
        self.model = DistributedDataParallel(Net{n}())
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))

    def evaluate(self):
        total = torch.zeros(1)
        with torch.no_grad():
            for x, y in self.loader:
                total += nn.functional.cross_entropy(self.model.module(x), y)
        dist.all_reduce(total)
        return total.item()

    def save(self, epoch):
        if self.rank == 0:
            torch.save({{"model": self.model.module.state_dict(), "epoch": epoch}}, "last{n}.pt")
        dist.barrier()

    def fit(self):
        for epoch in range(self.epochs):
            for x, y in self.loader:
                self.optimizer.zero_grad()
                loss = nn.functional.cross_entropy(self.model(x), y)
                loss.backward()
                self.optimizer.step()
            value = self.evaluate()
            self.bad = 0 if value < self.best else self.bad + 1
            self.best = min(self.best, value)
            self.save(epoch)
            if self.bad > 10:
                break


def main{n}(data):
    dist.init_process_group("nccl")
    Trainer{n}(data, 10).fit()
"""
CALL = """

if __name__ == "__main__":
    main{n}(torch.utils.data.TensorDataset(torch.zeros(8, 8), torch.zeros(8).long()))
"""


def source(lines: int) -> str:
    """A file of about so many lines."""
    parts, number = [HEAD], 0
    while sum(part.count("\n") for part in parts) < lines:
        parts.append(PART.format(n=number))
        number += 1
    return "".join(parts) + CALL.format(n=0)


def seconds(script: Path) -> tuple[float, float]:
    """The whole command, and the most memory of the largest so far in MiB."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "ddpdoctor", "check", "--no-run", "--format", "json", script.name]
    subprocess.run(
        command, cwd=script.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    taken = time.perf_counter() - begin
    return taken, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "train.py"
        for lines, limit in ((100, "source"), (1000, "source"), (10_000, "source_large")):
            script.write_text(source(lines))
            taken, memory = min(seconds(script) for _ in range(3))
            tell(limit, taken, of=f"{lines:,} lines", spread=f"{memory:.0f} MiB")
        for number in range(100):
            (folder / f"part{number}.py").write_text(HEAD + PART.format(n=number))
        imports = "".join(f"from part{number} import main{number}\n" for number in range(100))
        script.write_text(HEAD + imports + CALL.format(n=0))
        taken, memory = min(seconds(script) for _ in range(3))
        tell("source_large", taken, of="100 files", spread=f"{memory:.0f} MiB")


if __name__ == "__main__":
    main()
