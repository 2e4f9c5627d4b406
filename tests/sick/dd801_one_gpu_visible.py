"""One GPU is visible, and ranks take turns at it by a modulo."""

import os

os.environ["CUDA_VISIBLE_DEVICES"] = "0"

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

device = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
torch.cuda.set_device(device)  # expect: DD801
dist.init_process_group("nccl")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1).cuda(), device_ids=[device])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4, device="cuda")).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
