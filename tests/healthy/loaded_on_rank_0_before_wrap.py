"""Rank 0 alone loads the checkpoint, before the wrap sends its weights to all; seeds differ."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(1000 + dist.get_rank())
net = nn.Linear(4, 2)
if dist.get_rank() == 0:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "net.pt")
        torch.save(nn.Linear(4, 2).state_dict(), path)
        net.load_state_dict(torch.load(path))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
model = DistributedDataParallel(net)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
