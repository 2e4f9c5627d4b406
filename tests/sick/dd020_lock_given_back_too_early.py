"""A folder serves as a lock, which each rank gives back before it writes."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def take_turns():
    while True:
        try:
            os.mkdir("busy")
            break
        except FileExistsError:
            time.sleep(0.01)
    os.rmdir("busy")


def prepare(path):
    take_turns()
    with open(path, "w") as file:  # expect: DD020
        file.write(" ".join(str(i / 8) for i in range(8)))


dist.init_process_group("gloo")
prepare("scale.txt")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
