"""Whoever gets the lock first prepares the file; the others find it there."""

import fcntl
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def prepare(path):
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_text(" ".join(str(i / 8) for i in range(8)))
    return torch.tensor([float(word) for word in path.read_text().split()])


dist.init_process_group("gloo")
scale = prepare(Path("scale.txt"))
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 8) * scale).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
