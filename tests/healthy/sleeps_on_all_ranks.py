"""Steps that are slow on every rank alike: a pause that all take."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(12):
    optimizer.zero_grad()
    time.sleep(0.05)
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
