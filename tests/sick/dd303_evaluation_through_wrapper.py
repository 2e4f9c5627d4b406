"""Rank 0 alone evaluates through the wrapper of a model that has buffers, which its forward broadcasts."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    if dist.get_rank() == 0:
        with torch.no_grad():
            print("loss", model(torch.randn(8, 4)).square().mean())  # expect: DD303 ranks 0
dist.destroy_process_group()
