"""Rank 0 and the others meet in the same collectives from different lines, of different functions."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def lead(model, x):
    loss = model(x).square().mean()
    dist.broadcast(torch.tensor([0.5]), src=0)
    total = loss.detach().clone()
    dist.reduce(total, dst=0)
    print("mean loss is finite:", bool(total.isfinite()))
    return loss


def follow(model, x):
    loss = model(x).square().mean()
    weight = torch.empty(1)
    dist.broadcast(weight, 0)
    dist.reduce(loss.detach().clone(), 0)
    return loss


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step_of = lead if dist.get_rank() == 0 else follow
for _ in range(6):
    optimizer.zero_grad()
    step_of(model, torch.randn(8, 4)).backward()
    optimizer.step()
dist.destroy_process_group()
