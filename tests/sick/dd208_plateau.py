"""Each rank judges the plateau by its own loss."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
torch.manual_seed(rank)
shard = torch.randn(8, 4)
for epoch in range(6):
    loss = model(shard).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    drift = epoch if rank else -epoch
    scheduler.step(loss.item() + drift)  # expect: DD208
dist.destroy_process_group()
