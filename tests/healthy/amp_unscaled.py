"""A GradScaler at work: unscale_ before clipping, accumulation, and a first scale that overflows."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=2)
for _ in range(6):
    optimizer.zero_grad()
    for last in (False, True):
        with nullcontext() if last else model.no_sync():
            loss = 10 * model(torch.randn(8, 8)).square().mean() / 2
            scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
dist.destroy_process_group()
