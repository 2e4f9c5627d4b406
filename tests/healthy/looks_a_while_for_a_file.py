"""Rank 1 looks some seconds for an optional file, then goes on; rank 0 looks whether its own thread is done."""

import os
import threading
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def prepare(rows):
    end = time.monotonic() + 8
    while time.monotonic() < end:
        rows.append(sum(number * number for number in range(20_000)))


dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    if step == 4 and rank == 1:
        began = time.monotonic()
        while not os.path.exists("hints.txt") and time.monotonic() - began < 8:
            time.sleep(0.01)
    if step == 8 and rank == 0:
        rows = []
        worker = threading.Thread(target=prepare, args=(rows,))
        worker.start()
        while worker.is_alive():
            time.sleep(0.1)
    optimizer.zero_grad()
    model(torch.randn(16, 8)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
