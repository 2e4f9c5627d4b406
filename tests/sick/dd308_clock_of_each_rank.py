"""The job ends itself before the scheduler's limit, each rank by its own clock; a short run does not come to that."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

HOURS = 3600

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
began = time.time()
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    if time.time() - began > 11.5 * HOURS:  # expect: DD308
        break
dist.destroy_process_group()
