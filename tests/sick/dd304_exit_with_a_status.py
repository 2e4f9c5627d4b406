"""Rank 1 takes a check of its own for reason enough to end with status 3."""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        if step == 3 and dist.get_rank() == 1:
            sys.exit(3)  # expect: DD304 ranks 1
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
