"""Rank 0 swaps the averaged weights in to evaluate, and does not swap them out."""

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 2))
ema = copy.deepcopy(model.module)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        for average, weight in zip(ema.parameters(), model.parameters(), strict=True):
            average.lerp_(weight, 0.1)
    if step == 2 and dist.get_rank() == 0:
        with torch.no_grad():
            print("loss of the average", ema(torch.randn(8, 4)).square().mean().item())
        model.module.load_state_dict(ema.state_dict())  # expect: DD226 ranks 0
dist.destroy_process_group()
