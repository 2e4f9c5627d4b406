"""Ranks begin to train when their own memory is filled, which takes them a different number of turns."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    memory = []
    for _ in range(12):
        memory += torch.randn(3 + rank, 4).unbind()
        if len(memory) < 12:  # expect: DD308 ranks 0
            continue
        optimizer.zero_grad()
        model(torch.stack(memory[-4:])).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


main()
