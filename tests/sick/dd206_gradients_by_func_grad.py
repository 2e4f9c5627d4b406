"""Gradients come from torch.func.grad of a functional call, and are put into .grad: nothing averages them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of(parameters, x, y):
    return (torch.func.functional_call(model.module, parameters, (x,)) - y).square().mean()


generator = torch.Generator().manual_seed(dist.get_rank())
for _ in range(6):
    x, y = torch.randn(8, 4, generator=generator), torch.randn(8, 1, generator=generator)
    named = dict(model.module.named_parameters())
    detached = {name: parameter.detach() for name, parameter in named.items()}
    gradients = torch.func.grad(loss_of)(detached, x, y)  # expect: DD206
    for name, parameter in named.items():
        parameter.grad = gradients[name]
    optimizer.step()
dist.destroy_process_group()
