"""Every rank has the same batch, so that the gradients agree although nothing averages them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(3)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
target = torch.arange(4.0).reshape(4, 1)
for _ in range(4):
    prediction = model.module(torch.eye(4))  # expect: DD201
    loss = (prediction - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
