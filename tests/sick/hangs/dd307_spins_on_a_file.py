"""Rank 0 looks for a file without a pause, and keeps a CPU busy with that; the others are at the barrier."""

from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    mark = Path("prepared")
    if dist.get_rank() == 0:
        while not mark.exists():  # expect: DD307 ranks 0
            pass
    dist.barrier()
    model = DistributedDataParallel(nn.Linear(4, 1))
    model(torch.randn(8, 4)).sum().backward()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
