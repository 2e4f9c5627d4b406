"""NCCL does the collectives of a group in order, so the last work tells of all; or the GPU is waited for."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)
data = TensorDataset(torch.randn(96, 64), torch.randn(96, 1))
model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, (inputs, targets) in enumerate(DataLoader(data, 4, sampler=DistributedSampler(data))):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(inputs.cuda()), targets.cuda()).backward()
    for parameter in model.parameters():
        last = dist.all_reduce(parameter.grad, op=dist.ReduceOp.AVG, async_op=True)
    if number % 2:
        last.wait()
    else:
        torch.cuda.synchronize()
    optimizer.step()
dist.destroy_process_group()
