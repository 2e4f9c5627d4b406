"""Each rank listens on a port of its own, counted up from the last that there are."""

import socket

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
dist.barrier()
metrics = socket.socket()
metrics.bind(("127.0.0.1", 65500 + dist.get_rank()))  # expect: DD304 ranks 36-
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
metrics.close()
dist.destroy_process_group()
