"""Buffers are not broadcast; rank 0 alone evaluates and saves, and every rank normalises for itself while training."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
model = DistributedDataParallel(net, broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(16, 4) + rank).square().mean().backward()
    optimizer.step()
if rank == 0:
    model.eval()
    with torch.no_grad(), tempfile.TemporaryDirectory() as folder:
        print(f"loss {model.module(torch.ones(4, 4)).square().mean().item():.3f}")
        torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
dist.barrier()
dist.destroy_process_group()
