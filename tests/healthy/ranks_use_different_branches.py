"""Ranks serve different tasks, so each leaves another head unused; find_unused_parameters is there for that."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class ManyTasks(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.heads = nn.ModuleList(nn.Linear(4, 1) for _ in range(tasks))

    def forward(self, x, task):
        return self.heads[task](self.trunk(x).relu())


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(ManyTasks(dist.get_world_size()), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(8):
    optimizer.zero_grad()
    model(torch.randn(8, 4), rank).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
