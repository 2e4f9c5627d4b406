"""SyncBatchNorm is converted after the wrap, and on the CPU."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1)))
model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # expect: DD221
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(16, 4)).square().mean().backward()
    optimizer.step()
