"""Each rank makes the output folder where it finds none; this time no two ranks come at the same moment."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def make_folder(path):
    if not os.path.exists(path):
        os.makedirs(path)  # expect: DD020


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
time.sleep(0.3 * dist.get_rank())
make_folder("output")
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
