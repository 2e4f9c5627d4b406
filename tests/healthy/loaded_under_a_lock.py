"""Whoever gets the lock first makes the cache, with torch.save; all read it, one after the other."""

import fcntl
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def cached(path):
    with open(f"{path}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            torch.save(torch.linspace(0, 1, 8), path)
    return torch.load(path)


dist.init_process_group("gloo")
scale = cached(Path("scale.pt"))
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 8) * scale).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
