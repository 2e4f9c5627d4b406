"""Gradients are averaged by hand, those that are None left out; rank 1 did not use the last layer."""

import torch
import torch.distributed as dist
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)

    def forward(self, x, with_head):
        x = self.body(x)
        return self.head(x) if with_head else x


def average(model):
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(5):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4), not (step == 3 and dist.get_rank() == 1)).square().mean()
        loss.backward()
        average(model)
        optimizer.step()
        dist.barrier()  # expect: DD302 ranks 1
    dist.destroy_process_group()


# at least 3 ranks
main()
