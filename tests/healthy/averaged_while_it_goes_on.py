"""Gradients are averaged by works that are waited for in three ways before the step."""

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
    works = [dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters()]
    if len(works) % 3 == 0:
        torch.futures.wait_all([work.get_future() for work in works])
    for work in works[::2]:
        work.wait()
    while not all(work.is_completed() for work in works):
        pass
    for parameter in model.parameters():
        parameter.grad /= dist.get_world_size()
    optimizer.step()
dist.destroy_process_group()
