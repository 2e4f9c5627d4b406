"""Gradients are averaged by works that nothing waits for."""

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for inputs, targets in DataLoader(data, 8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    for parameter in model.parameters():
        parameter.grad /= dist.get_world_size()
        dist.all_reduce(parameter.grad, async_op=True)  # expect: DD228
    optimizer.step()
dist.destroy_process_group()
