"""Rank 0 alone keeps a moving average, evaluates with it and saves it."""

import copy
import os
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DDP(nn.Linear(4, 2))
    average = copy.deepcopy(model.module) if dist.get_rank() == 0 else None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if average is not None:
            with torch.no_grad():
                for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
                    mine.lerp_(theirs, 0.1)
    if average is not None:
        with torch.no_grad():
            print(f"loss of the average: {average(torch.ones(2, 4)).square().mean().item():.3f}")
        with tempfile.TemporaryDirectory() as folder:
            torch.save(average.state_dict(), os.path.join(folder, "average.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
