"""Gradients summed over ranks by hand: the loss, or the script before or after the sum, divides by their number."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()


def train(loss_of, *, before=1, after=1):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    for _ in range(4):
        optimizer.zero_grad()
        loss_of(model(torch.randn(8, 8)), torch.randint(0, 4, (8,))).backward()
        for parameter in model.parameters():
            parameter.grad /= before
            dist.all_reduce(parameter.grad)
            parameter.grad /= after
        optimizer.step()


def of_all(outputs, targets):
    return F.cross_entropy(outputs, targets, reduction="sum") / (8 * size)


train(F.cross_entropy, before=size)
train(F.cross_entropy, after=size)
train(lambda outputs, targets: F.cross_entropy(outputs, targets) / size)
train(of_all)
dist.destroy_process_group()
