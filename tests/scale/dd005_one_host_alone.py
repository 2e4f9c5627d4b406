"""The number of GPUs is taken for the number of ranks, which is right on one host."""

import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(  # expect: DD005 ranks 0-
    "gloo",
    rank=int(os.environ["LOCAL_RANK"]),
    world_size=int(os.environ["LOCAL_WORLD_SIZE"]),
    timeout=datetime.timedelta(seconds=3),
)
model = DistributedDataParallel(nn.Linear(4, 1))
model(torch.randn(8, 4)).sum().backward()
dist.destroy_process_group()
