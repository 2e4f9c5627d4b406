"""A step is taken with the average of the gradients of the step before, which comes while this one computes."""

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
late = None
for inputs, targets in DataLoader(data, 8, sampler=DistributedSampler(data)):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs), targets).backward()
    mine = torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])
    work = dist.all_reduce(mine, async_op=True)
    if late is not None:
        sizes = [parameter.numel() for parameter in model.parameters()]
        for parameter, part in zip(model.parameters(), late.split(sizes)):
            parameter.grad = part.view_as(parameter) / dist.get_world_size()
        optimizer.step()
    work.wait()
    late = mine
dist.destroy_process_group()
