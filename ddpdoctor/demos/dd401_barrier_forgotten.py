"""Rank 0 saves, and every rank reads at once."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(nn.Linear(4, 1))
if rank == 0:
    torch.save(model.module.state_dict(), "last.pt")
dist.barrier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
if rank == 0:
    torch.save(model.module.state_dict(), "last.pt")
weights = torch.load("last.pt", map_location="cpu")  # expect: DD401 ranks 1-
model.module.load_state_dict(weights)
dist.destroy_process_group()
