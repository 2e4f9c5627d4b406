"""Rank 1 meets a loss that it does not like and skips the update, after the backward."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    scale = 100.0 if step == 3 and dist.get_rank() == 1 else 1.0
    loss = scale * model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    if loss.item() > 10:  # expect: DD225 ranks 1
        continue
    optimizer.step()
dist.destroy_process_group()
