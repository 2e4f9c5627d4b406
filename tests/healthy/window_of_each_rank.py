"""Rank 0 has less memory: half the micro-batch, twice as many of them to an update. Updates are as many everywhere.

It also goes over its loader before the others do, for statistics: what a pass is to the run is not its number.
"""

import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
data = TensorDataset(torch.randn(96 * ranks, 4), torch.randn(96 * ranks, 1))
sampler = DistributedSampler(data)
window = 2 if rank == 0 else 1
loader = DataLoader(data, batch_size=8 // window, sampler=sampler)
scale = torch.zeros(4)
if rank == 0:
    for _ in range(2):
        for x, _ in loader:
            scale += x.square().mean(0) / 2 / len(loader)
dist.broadcast(scale, 0)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(4):
    sampler.set_epoch(epoch)
    for number, (x, y) in enumerate(loader, 1):
        update = number % window == 0
        with contextlib.nullcontext() if update else model.no_sync():
            (nn.functional.mse_loss(model(x / scale), y) / window).backward()
        if update:
            optimizer.step()
            optimizer.zero_grad()
dist.barrier()
dist.destroy_process_group()
