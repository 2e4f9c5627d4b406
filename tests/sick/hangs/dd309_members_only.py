"""Rank 0 makes a group for itself inside its own branch, so it counts one group more when all make the next."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def make_groups():
    if dist.get_rank() == 0:
        dist.new_group([0])  # expect: DD309 ranks 0
    return dist.new_group()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
everybody = make_groups()
model = DistributedDataParallel(nn.Linear(4, 1), process_group=everybody)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
