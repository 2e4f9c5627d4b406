"""Rank 0 has one batch more than the others."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Subset, TensorDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
dataset = TensorDataset(torch.arange(241.0).reshape(241, 1))
part = Subset(dataset, range(rank, len(dataset), world_size))
loader = DataLoader(part, batch_size=8)  # expect: DD106 ranks 1-
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(2):
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
dist.destroy_process_group()
