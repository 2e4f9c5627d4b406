"""LOCAL_RANK == 0 stands for the main process, so every host writes the one checkpoint."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
if os.environ["LOCAL_RANK"] == "0":
    torch.save(model.module.state_dict(), "last.pt")  # expect: DD402 ranks 0,8
dist.barrier()
dist.destroy_process_group()
