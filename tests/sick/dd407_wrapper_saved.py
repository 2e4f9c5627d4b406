"""Rank 0 saves the state of the wrapper."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())
for step in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    torch.save({"model": model.state_dict(), "step": 3}, "last.pt")  # expect: DD407 ranks 0
dist.barrier()
dist.destroy_process_group()
