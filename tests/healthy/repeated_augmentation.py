"""A sampler that gives each sample to three ranks, each of which augments it anew: three ranks draw the same order."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, Sampler


class Augmented(Dataset):
    def __init__(self):
        self.data = torch.randn(48, 4, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index] + 0.1 * torch.randn(4)


class Repeating(Sampler):
    def __init__(self, samples):
        self.samples, self.epoch = samples, 0
        self.rank, self.num_replicas = dist.get_rank(), dist.get_world_size()

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        order = torch.randperm(self.samples, generator=torch.Generator().manual_seed(self.epoch))
        own = order.repeat_interleave(3)[self.rank :: self.num_replicas]
        return iter(own[: len(self)].tolist())

    def __len__(self):
        return self.samples // self.num_replicas


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
dataset = Augmented()
sampler = Repeating(len(dataset))
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
