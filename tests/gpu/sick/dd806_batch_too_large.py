"""A batch that no GPU has the memory for."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
model = DDP(nn.Linear(1024, 1024).cuda())
x = torch.randn(1 << 30, 1024, device="cuda")  # expect: DD806
model(x).mean().backward()
dist.destroy_process_group()
