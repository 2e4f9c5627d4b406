"""Ranks gather their predictions, and have different numbers of them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
with torch.no_grad():
    predictions = model.module(torch.randn(6 - rank, 4))
gathered = [torch.empty_like(predictions) for _ in range(world_size)]
dist.all_gather(gathered, predictions)  # expect: DD302
dist.destroy_process_group()
