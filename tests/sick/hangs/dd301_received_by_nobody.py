"""Rank 0 waits for a tensor of rank 1, which takes the message for optional and is at the barrier already."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Exchange:
    def __init__(self, wanted):
        self.wanted = wanted

    def run(self):
        if dist.get_rank() == 0:
            tensor = torch.empty(4)
            dist.recv(tensor, src=1)
            return tensor
        if dist.get_rank() == 1 and self.wanted:
            dist.send(torch.ones(4), dst=0)
        return None


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
Exchange(wanted=False).run()
dist.barrier()  # expect: DD301 ranks 1
dist.destroy_process_group()
