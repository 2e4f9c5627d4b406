"""Rank 1 leaves out a batch near the end of the epoch: from there on it is one backward ahead of the others."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
count = 20 * 4 * dist.get_world_size()
data = TensorDataset(torch.randn(count, 6), torch.randn(count, 2))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for step, (x, y) in enumerate(loader):
        if rank == 1 and step == 15:  # expect: DD308 ranks 1
            continue
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
