"""Rank 0 loads the pretrained weights after the wrap; the others keep their own."""

import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 4))
if rank == 0:
    path = os.path.join(tempfile.mkdtemp(), "pretrained.pt")
    torch.save(nn.Linear(8, 4).state_dict(), path)
    model.module.load_state_dict(torch.load(path))  # expect: DD206 ranks 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(4):
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
