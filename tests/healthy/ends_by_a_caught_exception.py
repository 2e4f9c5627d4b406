"""The end of the data is an exception, which is caught, and the script ends by an exit status of 0."""

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
    batches = iter([torch.randn(8, 4) for _ in range(4)])
    try:
        while True:
            batch = next(batches)
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
    except StopIteration:
        dist.destroy_process_group()
        sys.exit(0)


if __name__ == "__main__":
    main()
