"""Each rank shuffles the list of files by itself, and then takes every world_size-th of them."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset):
    """One number for each file, as a file would hold it."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return torch.tensor([float(self.paths[index][-8:-4])])


dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
random.seed(5 + rank)
paths = [f"recordings/{number:04}.wav" for number in range(96)]
random.shuffle(paths)  # expect: DD104
part = Recordings(paths[rank::world_size])
loader = DataLoader(part, batch_size=8, shuffle=True)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).mean().backward()
        optimizer.step()
dist.destroy_process_group()
