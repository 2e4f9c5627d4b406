"""No backward averages, and what is gathered between two updates are outputs, not weights."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
torch.manual_seed(dist.get_rank())
for _ in range(10):
    optimizer.zero_grad()
    with model.no_sync():  # expect: DD202
        outputs = model(torch.randn(8, 5))
        outputs.square().mean().backward()
    optimizer.step()
    gathered = [torch.empty(8, 2) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, outputs.detach())
dist.destroy_process_group()
