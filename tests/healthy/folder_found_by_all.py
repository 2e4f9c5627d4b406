"""All ranks ask for the folder and make it where they find none, and catch that it is there by then."""

import errno
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
if not os.path.exists("output"):
    try:
        os.makedirs("output")
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
torch.manual_seed(rank)
model = DDP(nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
