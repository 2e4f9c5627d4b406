"""Gradients are clipped by hand, with no function of torch, at the GradScaler's scale."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def clip(parameters, limit):
    norm = torch.sqrt(sum(parameter.grad.pow(2).sum() for parameter in parameters))
    factor = limit / (norm + 1e-6)
    if factor < 1:
        for parameter in parameters:
            parameter.grad.data.mul_(factor)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
for _ in range(5):
    loss = model(torch.randn(8, 8)).square().mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    clip(list(model.parameters()), 1.0)
    scaler.step(optimizer)  # expect: DD217
    scaler.update()
dist.destroy_process_group()
