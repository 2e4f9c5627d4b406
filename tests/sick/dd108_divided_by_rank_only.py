"""The stream is divided among the ranks, and every worker of a rank yields the rank's part."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Records(IterableDataset):
    def __init__(self, rank, world_size):
        self.rank, self.world_size = rank, world_size

    def __iter__(self):
        for i in range(self.rank, 60, self.world_size):
            yield torch.tensor([i, i % 5]).float()


dist.init_process_group("gloo")
records = Records(dist.get_rank(), dist.get_world_size())
loader = DataLoader(records, batch_size=2, num_workers=2)  # expect: DD108
model = DistributedDataParallel(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
for batch in loader:
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
dist.destroy_process_group()
