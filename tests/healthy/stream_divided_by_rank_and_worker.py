"""A stream of which every worker of every rank takes its own part, with enough for all."""

from itertools import islice

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class Numbers(IterableDataset):
    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        info = get_worker_info()
        workers, worker = (info.num_workers, info.id) if info else (1, 0)
        first = self.rank * workers + worker
        yield from islice((torch.tensor([i / 96]) for i in range(96)), first, None, self.world_size * workers)


dist.init_process_group("gloo")
loader = DataLoader(Numbers(dist.get_rank(), dist.get_world_size()), batch_size=4, num_workers=2)
model = DistributedDataParallel(nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for batch in loader:
        optimizer.zero_grad()
        (model(batch) - batch).square().mean().backward()
        optimizer.step()
dist.destroy_process_group()
