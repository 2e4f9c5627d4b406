"""Weights are updated by a rule of the script's own, without an optimizer of torch, by gradients of each rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class SignedMomentum:
    def __init__(self, parameters, lr):
        self.parameters, self.lr = list(parameters), lr
        self.averages = [torch.zeros_like(parameter) for parameter in self.parameters]

    @torch.no_grad()
    def step(self, gradients):
        torch._foreach_mul_(self.averages, 0.9)
        torch._foreach_add_(self.averages, gradients, alpha=0.1)
        torch._foreach_add_(self.parameters, [average.sign() for average in self.averages], alpha=-self.lr)


dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(4, 2))
optimizer = SignedMomentum(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(12):
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.step(torch.autograd.grad(loss, model.parameters()))  # expect: DD206
dist.destroy_process_group()
