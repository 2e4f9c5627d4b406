"""A function of the script's own goes over the loader again and again, and tells its sampler the epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def cycle(loader):
    for epoch in range(1000):
        loader.sampler.set_epoch(epoch)
        yield from loader


dist.init_process_group("gloo")
train_set = TensorDataset(torch.randn(96, 4, generator=torch.Generator().manual_seed(0)))
loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = cycle(loader)
for _, (x,) in zip(range(24), batches, strict=False):
    optimizer.zero_grad()
    model(x + 0.1 * torch.randn_like(x)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
