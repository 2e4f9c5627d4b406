"""Only rank 0 asks for the mean of the loss, which needs all ranks."""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def mean_of(value):
    value = value.detach().clone()
    dist.all_reduce(value)  # expect: DD303 ranks 0
    return value / dist.get_world_size()


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
if dist.get_rank() == 0:
    print("loss", mean_of(loss))
dist.destroy_process_group()
