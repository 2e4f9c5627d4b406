"""Gradients are summed over ranks by hand, without DistributedDataParallel, and never divided."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn


def synchronize(model):
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)  # expect: DD211


dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for _ in range(5):
    optimizer.zero_grad()
    F.cross_entropy(model(torch.randn(8, 8)), torch.randint(0, 4, (8,))).backward()
    synchronize(model)
    optimizer.step()
dist.destroy_process_group()
