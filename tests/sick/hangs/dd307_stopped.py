"""Rank 1 is stopped by a signal in the middle of training, as a debugger or a job manager does it."""

import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(6):
    if step == 4 and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGSTOP)  # expect: DD307 ranks 1
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
