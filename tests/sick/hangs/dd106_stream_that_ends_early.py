"""A stream of which rank 0 gets two samples less; how many there are, nobody can know before."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __iter__(self):
        rank = dist.get_rank()
        for number in range(10 if rank == 0 else 12):
            yield torch.tensor([float(number), float(rank)])


def train(model, optimizer, loader):
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()


dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(Stream(), batch_size=2)  # expect: DD106 ranks 0
train(model, optimizer, loader)
dist.barrier()
dist.destroy_process_group()
