"""Sums divided by hand: by a number that all ranks know, by the same number everywhere, by one that is made good."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(rank)
counts = [8 + 24 * other for other in range(size)]
whole = sum(counts)
for step in range(6):
    squares = model(torch.randn(counts[rank], 8)).square()
    if step % 3 == 0:
        loss = squares.sum() * size / whole
    elif step % 3 == 1:
        loss = squares.sum() / counts[rank] * (counts[rank] * size / whole)
    else:
        per_sample = squares.view(8, -1)
        loss = (per_sample.sum(1) / per_sample.shape[1]).sum() / 8
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
