"""A framework makes the loader anew with a distributed sampler, and the weights are gone."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset, WeightedRandomSampler


def prepare(loader):
    """What a framework does to the loaders that it is given."""
    sampler = DistributedSampler(loader.dataset)
    return DataLoader(loader.dataset, batch_size=loader.batch_size, sampler=sampler)  # expect: DD110


dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(48.0).reshape(48, 1), torch.zeros(48, dtype=torch.long))
weighted = WeightedRandomSampler([1.0] * 40 + [9.0] * 8, num_samples=48)
loader = prepare(DataLoader(dataset, batch_size=6, sampler=weighted))
model = DistributedDataParallel(nn.Linear(1, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(2):
    loader.sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
