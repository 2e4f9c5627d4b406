"""The list of files is shuffled before it is divided, from another seed in every process."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Images(Dataset):
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.tensor([float(len(self.paths[index])), index / 40])


dist.init_process_group("gloo")
random.seed(dist.get_rank() + 5)
paths = [f"images/{number:04}.png" for number in range(42)]
random.shuffle(paths)  # expect: DD111
dataset = Images(paths)
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler, drop_last=True)
model = DistributedDataParallel(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
dist.destroy_process_group()
