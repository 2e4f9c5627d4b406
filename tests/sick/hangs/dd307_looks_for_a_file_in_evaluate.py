"""Rank 0 looks again and again for a file that nobody writes, in a function that is called as one that works."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def evaluate(path):
    while not os.path.exists(path):  # expect: DD307 ranks 0
        time.sleep(0.2)


def main():
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(4, 1))
    model(torch.randn(8, 4)).sum().backward()
    if dist.get_rank() == 0:
        evaluate("predictions-of-rank-1")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
