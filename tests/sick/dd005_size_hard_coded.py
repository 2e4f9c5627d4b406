"""The script was written for eight processes, and says so whatever the launcher started."""

import datetime
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group(  # expect: DD005
    "gloo", rank=int(os.environ["RANK"]), world_size=8, timeout=datetime.timedelta(seconds=3)
)
model = DistributedDataParallel(nn.Linear(4, 1))
model(torch.randn(8, 4)).sum().backward()
dist.destroy_process_group()
