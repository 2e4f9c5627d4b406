"""Rank 0 makes the output folder where there is none; the others look for it behind a barrier, at the same line."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def make_folder(path):
    if not os.path.exists(path):
        os.makedirs(path)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
if dist.get_rank() == 0:
    make_folder("output")
dist.barrier()
make_folder("output")
Path("logs").mkdir(exist_ok=True)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
