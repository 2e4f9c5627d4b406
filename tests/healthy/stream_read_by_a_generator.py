"""A stream without an end, read through a generator that the loop asks for one batch after another."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset


class Numbers(IterableDataset):
    """Random samples, others on each rank."""

    def __iter__(self):
        generator = torch.Generator().manual_seed(dist.get_rank())
        while True:
            sample = torch.randn(4, generator=generator)
            yield sample, sample.sum(0, keepdim=True)


def batches():
    """Batches as the model wants them."""
    for inputs, targets in DataLoader(Numbers(), batch_size=4):
        yield inputs * 2, targets


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
source = batches()
for step in range(30):
    inputs, targets = next(source)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(inputs), targets).backward()
    optimizer.step()
dist.destroy_process_group()
