"""Gradients are taken by torch.autograd.grad and averaged by hand; those of the inputs are a penalty."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(7 + dist.get_rank())
for step in range(10):
    inputs = torch.randn(8, 6, requires_grad=True)
    outputs = model(inputs)
    (slopes,) = torch.autograd.grad(outputs.sum(), inputs, create_graph=True)
    loss = outputs.square().mean() + slopes.square().sum(1).mean()
    if step % 2:
        optimizer.zero_grad()
        loss.backward()
    else:
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            dist.all_reduce(gradient)
            parameter.grad = gradient / dist.get_world_size()
    optimizer.step()
dist.destroy_process_group()
