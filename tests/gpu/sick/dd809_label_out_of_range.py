"""A label that is as large as the number of classes: a device-side assert, which a later call reports."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = DDP(nn.Linear(8, 4).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    labels = torch.full((16,), 4, device="cuda")
    nn.functional.cross_entropy(model(torch.randn(16, 8, device="cuda")), labels).backward()
    optimizer.step()
torch.cuda.synchronize()
dist.destroy_process_group()
