"""Rank 1 meets a sample that it cannot read."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Numbers(Dataset):
    def __len__(self):
        return 8 * dist.get_world_size()

    def __getitem__(self, index):
        if index == 4 * dist.get_world_size() + 1:
            raise ValueError(f"sample {index} has no label")  # expect: DD304 ranks 1
        return torch.tensor([index / 10])


dist.init_process_group("gloo")
sampler = DistributedSampler(Numbers(), shuffle=False)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x in DataLoader(Numbers(), batch_size=2, sampler=sampler):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
