"""Five batches in windows of two: the fifth waits for the next epoch."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

ACCUMULATE = 2

dist.init_process_group("gloo")
torch.manual_seed(0)
size = dist.get_world_size()
dataset = TensorDataset(torch.randn(20 * size, 4), torch.randn(20 * size, 1))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=4, sampler=sampler)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    sampler.set_epoch(epoch)
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        last = (i + 1) % ACCUMULATE == 0
        with nullcontext() if last else model.no_sync():
            loss = nn.functional.mse_loss(model(x), y) / ACCUMULATE
            loss.backward()
        if last:
            optimizer.step()  # expect: DD210
            optimizer.zero_grad()
dist.destroy_process_group()
