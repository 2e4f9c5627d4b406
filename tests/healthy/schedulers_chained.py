"""Warm-up and cosine by a SequentialLR, and a plateau scheduler that is given the averaged loss each epoch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, ReduceLROnPlateau, SequentialLR

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
warmup = SequentialLR(optimizer, [LinearLR(optimizer, 0.1, 1.0, 3), CosineAnnealingLR(optimizer, 20)], [3])
plateau = ReduceLROnPlateau(optimizer, patience=0)
for _ in range(3):
    total = torch.zeros(())
    for _ in range(4):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        warmup.step()
        total += loss.detach()
    dist.all_reduce(total)
    plateau.step(total.item())
dist.destroy_process_group()
