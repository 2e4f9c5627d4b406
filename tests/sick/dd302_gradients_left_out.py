"""Gradients are averaged by hand, and each rank leaves out those of the expert that it did not use."""

import torch
import torch.distributed as dist
from torch import nn


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(4, 1)
        self.experts = nn.ModuleList(nn.Linear(4, 1) for _ in range(2))

    def forward(self, x, chosen):
        return self.experts[chosen](x) * self.gate(x)


def average(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)  # expect: DD302
            parameter.grad /= dist.get_world_size()


dist.init_process_group("gloo")
torch.manual_seed(0)
model = Experts()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for step in range(6):
    optimizer.zero_grad(set_to_none=True)
    model(torch.randn(8, 4), chosen=(step + dist.get_rank()) % 2).square().mean().backward()
    average(model)
    optimizer.step()
dist.barrier()
dist.destroy_process_group()
