"""What rank 1 raises is caught around the task, printed in short and turned into an exit status, as hydra does."""

import sys
import traceback

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def start_logging():
    if dist.get_rank() == 1:
        raise KeyError("no key for the service")  # expect: DD304 ranks 1


def task():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    start_logging()
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    dist.destroy_process_group()


def run(task):
    try:
        task()
    except KeyError:
        traceback.print_exc(limit=-1)
        sys.exit(1)


if __name__ == "__main__":
    run(task)
