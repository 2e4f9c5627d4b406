"""itertools.cycle keeps the batches of the first pass, and each gets noise of its own each time."""

from itertools import cycle

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
train_set = TensorDataset(torch.randn(96, 4, generator=torch.Generator().manual_seed(0)))
loader = DataLoader(train_set, batch_size=8, sampler=DistributedSampler(train_set))
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = cycle(loader)  # expect: DD103
for _, (x,) in zip(range(24), batches, strict=False):
    optimizer.zero_grad()
    model(x + 0.1 * torch.randn_like(x)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
