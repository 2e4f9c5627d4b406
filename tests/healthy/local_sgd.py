"""Ranks train alone and average their weights every third step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def average(model):
    with torch.no_grad():
        for parameter in model.parameters():
            dist.all_reduce(parameter)
            parameter /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DDP(nn.Linear(5, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(1, 10):
    optimizer.zero_grad()
    with model.no_sync():
        model(torch.randn(8, 5)).square().mean().backward()
    optimizer.step()
    if step % 3 == 0:
        average(model)
dist.destroy_process_group()
