"""A native extension of rank 0 reads memory that is not there."""

import ctypes

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self):
        self.model = DistributedDataParallel(nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self):
        self.optimizer.zero_grad()
        self.model(torch.randn(8, 4)).square().mean().backward()
        self.optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
trainer = Trainer()
for step in range(6):
    trainer.step()
    if step == 3 and dist.get_rank() == 0:
        ctypes.string_at(0)  # expect: DD012 ranks 0 nowhere
dist.destroy_process_group()
