"""Rank 1 reads its samples from a slower disk."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Samples(Dataset):
    def __len__(self):
        return 64 * dist.get_world_size()

    def __getitem__(self, index):
        if dist.get_rank() == 1:
            time.sleep(0.04)  # expect: DD601 ranks 1
        return torch.tensor([index / 10])


dist.init_process_group("gloo")
sampler = DistributedSampler(Samples(), shuffle=False)
loader = DataLoader(Samples(), batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
