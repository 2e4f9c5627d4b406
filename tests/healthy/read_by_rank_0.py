"""Rank 0 alone has the data and sends the others their batches; they count them."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

BATCHES, SIZE = 24, 4
dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def batches():
    if rank == 0:
        data = TensorDataset(torch.randn(BATCHES * SIZE * ranks, 4))
        for (x,) in DataLoader(data, batch_size=SIZE * ranks, shuffle=True):
            dist.broadcast(x, 0)
            yield x[:SIZE]
    else:
        for _ in range(BATCHES):
            x = torch.empty(SIZE * ranks, 4)
            dist.broadcast(x, 0)
            yield x[rank * SIZE : (rank + 1) * SIZE]


for _ in range(2):
    for x in batches():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
