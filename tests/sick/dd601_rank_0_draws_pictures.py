"""Rank 0 makes a picture for its log in each step."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def draw(output):
    time.sleep(0.1)  # expect: DD601 ranks 0
    return output.detach().tolist()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(14):
    optimizer.zero_grad()
    output = model(torch.randn(16, 8))
    output.square().mean().backward()
    if dist.get_rank() == 0:
        draw(output)
    optimizer.step()
dist.destroy_process_group()
