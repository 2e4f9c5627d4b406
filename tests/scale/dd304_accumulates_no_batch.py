"""Batches are accumulated to one of 32 for the whole job: none of them, where there are more ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
dist.barrier()
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
accumulated = 2 // dist.get_world_size()
for number in range(6):
    model(torch.randn(8, 4)).square().mean().backward()
    if (number + 1) % accumulated == 0:  # expect: DD304
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
