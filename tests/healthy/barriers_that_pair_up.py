"""The barrier that lets rank 0 go first stands on two lines: the others wait in the first, rank 0 in the second."""

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
local_rank = int(os.environ["LOCAL_RANK"])
if local_rank not in (-1, 0):
    dist.barrier()  # the first goes ahead and fills the cache
cache = Path("cache.json")
if not cache.exists():
    cache.write_text(json.dumps([0.5, 1.0, 1.5]))
weights = torch.tensor(json.loads(cache.read_text()))
if local_rank == 0:
    dist.barrier()
torch.manual_seed(local_rank)
model = DDP(nn.Linear(3, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(6):
    optimizer.zero_grad()
    model(torch.randn(4, 3) * weights).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
