"""Rank 0 decides the learning rate by its own loss, and sends it to all."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
best = float("inf")
for _ in range(6):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rate = torch.tensor(optimizer.param_groups[0]["lr"])
    if dist.get_rank() == 0 and loss.item() > best:
        rate *= 0.5
    best = min(best, loss.item())
    dist.broadcast(rate, src=0)
    optimizer.param_groups[0]["lr"] = rate.item()
dist.destroy_process_group()
