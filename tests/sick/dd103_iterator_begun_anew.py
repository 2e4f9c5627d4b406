"""An iterator that is begun anew where the one before has come to its end; the sampler is never told the epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(0)
train_set = TensorDataset(torch.randn(96, 4, generator=generator))
train_loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = iter(train_loader)
for step in range(24):
    try:
        (x,) = next(batches)
    except StopIteration:
        batches = iter(train_loader)  # expect: DD103
        (x,) = next(batches)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
