"""Whoever makes a folder first prepares the file, and removes the folder; the others try until it is gone."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def prepare(path):
    while True:
        try:
            os.mkdir("busy")
            break
        except FileExistsError:
            time.sleep(0.01)
    try:
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(" ".join(str(i / 8) for i in range(8)))
        with open(path) as file:
            return torch.tensor([float(word) for word in file.read().split()])
    finally:
        os.rmdir("busy")


dist.init_process_group("gloo")
scale = prepare("scale.txt")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(4, 8) * scale).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
