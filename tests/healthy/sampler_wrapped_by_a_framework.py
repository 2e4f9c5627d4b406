"""A framework divides what the script's own sampler draws among the ranks, and drops the loader that had it."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset, WeightedRandomSampler


class Drawn(Dataset):
    """What a sampler draws, as a dataset of indices."""

    def __init__(self, sampler):
        self._sampler = sampler

    def draw(self):
        self._indices = list(self._sampler)

    def __len__(self):
        return len(self._sampler)

    def __getitem__(self, index):
        return self._indices[index]


class Divides(DistributedSampler):
    def __init__(self, sampler):
        super().__init__(Drawn(sampler), shuffle=False)

    def __iter__(self):
        self.dataset.draw()
        return (self.dataset[index] for index in super().__iter__())


def prepare(loader):
    return DataLoader(loader.dataset, batch_size=loader.batch_size, sampler=Divides(loader.sampler))


dist.init_process_group("gloo")
dataset = TensorDataset(torch.arange(48.0).reshape(48, 1), torch.zeros(48, dtype=torch.long))
draws = torch.Generator().manual_seed(3)  # alike on every rank
weighted = WeightedRandomSampler([1.0] * 40 + [9.0] * 8, num_samples=48, generator=draws)
loader = prepare(DataLoader(dataset, batch_size=4, sampler=weighted))
model = DistributedDataParallel(nn.Linear(1, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
dist.destroy_process_group()
