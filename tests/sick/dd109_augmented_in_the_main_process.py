"""Samples are turned and shifted at random in the main process, alike on every rank."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Shifted(Dataset):
    def __init__(self):
        self.data = torch.arange(96.0).reshape(48, 2) / 96

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        sample = self.data[index] + random.uniform(-0.1, 0.1)
        return sample.flip(0) if random.random() < 0.5 else sample


dist.init_process_group("gloo")
random.seed(1234)  # expect: DD109
dataset = Shifted()
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
