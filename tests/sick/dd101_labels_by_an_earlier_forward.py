"""Two loaders take turns, and one of them is not divided: a forward without autograd labels its batch first."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
generator = torch.Generator().manual_seed(0)
labelled = TensorDataset(torch.randn(96, 4, generator=generator), torch.randn(96, 4, generator=generator))
unlabelled = TensorDataset(torch.randn(120, 4, generator=generator))
sampler = DistributedSampler(labelled)
loader = DataLoader(labelled, batch_size=4, sampler=sampler)
others = iter(DataLoader(unlabelled, batch_size=2))  # expect: DD101
model = DistributedDataParallel(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x, y in loader:
        (more,) = next(others)
        with torch.no_grad():
            labels = model(more).clamp(-1, 1)
        optimizer.zero_grad()
        ((model(x) - y).square().mean() + (model(more) - labels).square().mean()).backward()
        optimizer.step()
dist.destroy_process_group()
