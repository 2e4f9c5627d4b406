"""Rank 0 broadcasts where the others average: each takes its own branch for the learning rate."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def agree(rate):
    value = torch.tensor([rate])
    if dist.get_rank() == 0:
        dist.broadcast(value, src=0)  # expect: DD302
    else:
        dist.all_reduce(value)
    return value.item()


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
agree(0.1)
dist.barrier()
dist.destroy_process_group()
