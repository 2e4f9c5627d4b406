"""Ranks have different numbers of batches, and leave the loop together as soon as one has none left."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
dataset = TensorDataset(torch.linspace(0, 1, 36).reshape(36, 1))
loader = DataLoader(Subset(dataset, range(rank, 36, 1 + rank)), batch_size=4, shuffle=True)
model = DDP(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    batches = iter(loader)
    while True:
        batch = next(batches, None)
        going_on = torch.tensor([0 if batch is None else 1])
        dist.all_reduce(going_on, op=dist.ReduceOp.MIN)
        if not going_on.item():
            break
        (x,) = batch
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
