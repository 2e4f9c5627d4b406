"""A checkpoint is due by the clock of each process, and the slower one comes to its barrier a step earlier."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Saver:
    def __init__(self, every):
        self.every, self.next = every, time.monotonic() + every

    def due(self):
        if time.monotonic() < self.next:
            return False
        self.next = time.monotonic() + self.every
        return True


dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batches = torch.Generator().manual_seed(dist.get_rank())
saver = Saver(2.0)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(4, 8, generator=batches)).square().mean().backward()
    optimizer.step()
    if dist.get_rank() == 1:
        time.sleep(1.0)  # it reads a slower disk
    if saver.due():
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "model.pt")
        dist.barrier()  # expect: DD303 ranks 1
dist.destroy_process_group()
