"""The loss is summed over ranks by a differentiable all_reduce, in a script for GPUs."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn import all_reduce
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(4, 2).to(device), device_ids=[device.index])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(6):
    optimizer.zero_grad()
    loss = all_reduce(model(torch.randn(8, 4, device=device)).square().mean())  # expect: DD211
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
