"""The samplers of the ranks have different seeds, so they divide different orders."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
rank, seed = dist.get_rank(), 42
dataset = TensorDataset(torch.arange(96.0).reshape(96, 1))
sampler = DistributedSampler(dataset, shuffle=True, seed=seed + rank)  # expect: DD104
loader = DataLoader(dataset, batch_size=8, sampler=sampler)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for (batch,) in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
dist.destroy_process_group()
