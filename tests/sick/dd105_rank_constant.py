"""The sampler is made by a helper that takes rank 0 and one replica where it is told nothing."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def make_loader(dataset, rank=0, world_size=1):
    sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank)  # expect: DD105
    return DataLoader(dataset, batch_size=6, sampler=sampler), sampler


dist.init_process_group("gloo")
loader, sampler = make_loader(TensorDataset(torch.arange(48.0).reshape(48, 1)))
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
dist.destroy_process_group()
