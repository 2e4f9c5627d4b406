"""Every rank reads all batches in one order and trains on every n-th; without a DistributedSampler."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
dataset = TensorDataset(torch.linspace(0, 1, 96).reshape(96, 1))
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    order = torch.Generator().manual_seed(epoch)
    loader = DataLoader(dataset, batch_size=4, shuffle=True, generator=order)
    for number, (batch,) in enumerate(loader):
        if number % world_size != rank:
            continue
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
