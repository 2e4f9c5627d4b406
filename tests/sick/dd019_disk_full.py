"""The disk is full when rank 0 saves; the others wait for it in a barrier."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
if dist.get_rank() == 0:
    with open("/dev/full", "wb", buffering=0) as file:
        torch.save(model.module.state_dict(), file)  # expect: DD019 ranks 0
dist.barrier()
dist.destroy_process_group()
