"""Rank 0 looks once in ten minutes whether the data has arrived; the others are at the barrier."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def wait_for(path):
    while not os.path.exists(path):  # expect: DD307 ranks 0
        time.sleep(600)


def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        wait_for("arrived")
    dist.barrier()
    model = DistributedDataParallel(nn.Linear(4, 1))
    model(torch.randn(8, 4)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
