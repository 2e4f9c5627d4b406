"""Ranks have GPUs of their own, and still put one tensor on the first GPU, before they choose."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

class_weights = torch.tensor([1.0, 2.0]).cuda()  # expect: DD803 ranks 1-
local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")
torch.manual_seed(local_rank)
model = DistributedDataParallel(nn.Linear(4, 2).cuda(), device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    weights = class_weights.to(local_rank)
    targets = torch.randint(2, (8,), device="cuda")
    nn.functional.cross_entropy(model(torch.randn(8, 4, device="cuda")), targets, weight=weights).backward()
    optimizer.step()
dist.destroy_process_group()
