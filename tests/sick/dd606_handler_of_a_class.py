"""A logger class opens the run's log in each process."""

import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class RunLogger:
    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.logger = logging.getLogger("run")
        path = os.path.join(folder, "log.txt")
        self.logger.addHandler(logging.FileHandler(path, mode="w"))  # expect: DD606

    def log(self, text):
        self.logger.warning(text)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    run = RunLogger("output")
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        run.log(f"step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
