"""Every rank shuffles the whole stream through a buffer, from a seed of its own."""

import random

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Shuffled(IterableDataset):
    def __init__(self, count, seed, buffer=8):
        self.count, self.seed, self.buffer = count, seed, buffer

    def __iter__(self):
        generator, waiting = random.Random(self.seed), []
        for number in range(self.count):
            waiting.append(torch.tensor([number / self.count]))
            if len(waiting) == self.buffer:
                yield waiting.pop(generator.randrange(self.buffer))
        yield from waiting


dist.init_process_group("gloo")
loader = DataLoader(Shuffled(200, seed=dist.get_rank()), batch_size=4)  # expect: DD102
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in loader:
    optimizer.zero_grad()
    (model(batch) - batch).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
