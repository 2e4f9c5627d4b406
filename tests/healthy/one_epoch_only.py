"""A single epoch needs no set_epoch, nor do epochs that are not shuffled, by choice."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(48.0).reshape(48, 1) / 48)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train(loader):
    for (batch,) in loader:
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()


train(DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset)))
in_order = DataLoader(dataset, batch_size=4, sampler=DistributedSampler(dataset, shuffle=False))
for _ in range(3):
    train(in_order)
dist.destroy_process_group()
