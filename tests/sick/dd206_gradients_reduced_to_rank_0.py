"""Gradients are averaged by hand, and reduce gives the sum to rank 0 alone."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = nn.Linear(4, 1)
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in DataLoader(data, 8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    for parameter in model.parameters():
        dist.reduce(parameter.grad, dst=0)  # expect: DD206
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    shown = loss.detach()
    dist.reduce(shown, dst=0)
dist.destroy_process_group()
