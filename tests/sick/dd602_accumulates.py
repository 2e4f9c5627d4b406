"""Four micro-batches to an update, and every one of them is averaged."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
data = TensorDataset(torch.linspace(0, 1, 64 * dist.get_world_size()).reshape(-1, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for i, (x,) in enumerate(loader):
        loss = (model(x) - x).square().mean() / 4
        loss.backward()  # expect: DD602
        if (i + 1) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
dist.destroy_process_group()
