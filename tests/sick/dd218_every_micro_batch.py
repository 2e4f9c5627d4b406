"""Clipping stands in the loop over micro-batches, ahead of the all-reduce."""

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

ACCUMULATE = 2

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(8):
    last = (i + 1) % ACCUMULATE == 0
    with nullcontext() if last else model.no_sync():
        loss = model(3 * torch.randn(8, 8)).square().mean() / ACCUMULATE
        loss.backward()
    clip_grad_norm_(model.parameters(), 0.1)  # expect: DD218
    if last:
        optimizer.step()
        optimizer.zero_grad()
dist.destroy_process_group()
