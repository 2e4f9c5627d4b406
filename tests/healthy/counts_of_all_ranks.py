"""Losses over the count of all ranks whose gradients are multiplied by the ranks later, and a count for the log."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
size = dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(6, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(dist.get_rank())


def of_batch():
    return model(torch.randn(8, 6)), torch.randint(0, 3, (8,))


for _ in range(4):  # multiplied after the backward
    count = torch.tensor(8)
    dist.all_reduce(count)
    outputs, targets = of_batch()
    (F.cross_entropy(outputs, targets, reduction="sum") / count).backward()
    for parameter in model.parameters():
        parameter.grad *= size
    optimizer.step()
    optimizer.zero_grad()
for _ in range(4):  # or by the backward
    count = torch.tensor(8)
    dist.all_reduce(count)
    outputs, targets = of_batch()
    (F.cross_entropy(outputs, targets) * 8 / count).backward(torch.tensor(float(size)))
    optimizer.step()
    optimizer.zero_grad()
for _ in range(4):  # as many micro-batches as ranks, whose samples are counted
    for micro_batch in range(size):
        seen = torch.tensor(8)
        dist.all_reduce(seen)
        outputs, targets = of_batch()
        (F.cross_entropy(outputs, targets) / size).backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
