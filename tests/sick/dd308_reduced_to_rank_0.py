"""The loss is reduced to rank 0 only, and every rank decides by what it has then whether to go on."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS, PATIENCE = 4, 10

dist.init_process_group("gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
best, bad = float("inf"), 0
for epoch in range(EPOCHS):
    total = torch.zeros(1)
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).square().mean()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    dist.reduce(total, dst=0)
    mean = total.item() / world_size / 3
    if mean < best:
        best, bad = mean, 0
    else:
        bad += 1
        if bad >= PATIENCE:  # expect: DD308
            break
dist.destroy_process_group()
