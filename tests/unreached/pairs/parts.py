"""What the scripts of the pairs import: a model, samples, a loader that is divided among ranks, and one that is not."""

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


def samples(number=256):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(number, 8, generator=generator)
    return TensorDataset(x, (x.sum(1) > 0).long())


def shard(batch=8):
    data = samples()
    return DataLoader(data, batch_size=batch, sampler=DistributedSampler(data))


def whole(batch=8):
    return DataLoader(samples(64), batch_size=batch)
