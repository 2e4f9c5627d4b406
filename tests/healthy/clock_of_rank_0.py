"""The job ends itself before the scheduler's limit, by the clock of rank 0, which it sends to all."""

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
    late = torch.tensor([float(time.time() - began > 11.5 * HOURS)])
    dist.broadcast(late, src=0)
    if late.item():
        break
dist.destroy_process_group()
