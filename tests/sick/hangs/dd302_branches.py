"""Rank 0 takes another branch when the learning rate is agreed on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def agree(rate):
    value = torch.tensor([rate])
    if dist.get_rank() == 0:
        dist.broadcast(value, src=1)  # expect: DD302 ranks 0 (of 2: 0-1)
    else:
        dist.all_reduce(value)
    return value.item()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
agree(0.1)
dist.destroy_process_group()
