"""The whole window stands inside no_sync."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(5 + dist.get_rank())
model = DistributedDataParallel(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    optimizer.zero_grad()
    with model.no_sync():  # expect: DD202
        for _ in range(3):
            loss = model(torch.randn(8, 3)).abs().mean() / 3
            loss.backward()
    optimizer.step()
dist.destroy_process_group()
