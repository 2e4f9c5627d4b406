"""Rank 0 alone evaluates through the wrapper by the function that trains, in eval mode, and leaves autograd on."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Looks(nn.Module):
    """Adds what it finds in a table."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 1)
        self.register_buffer("table", torch.randn(200_000))

    def forward(self, x):
        return self.linear(x) + self.table[: len(x), None]


def step(optimizer=None):
    loss = model(torch.randn(8, 4)).square().mean()  # expect: DD303 ranks 0
    if optimizer is not None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


dist.init_process_group("gloo", timeout=timedelta(seconds=8))
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(Looks())
sgd = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(20):
    step(sgd)
    if number == 4 and dist.get_rank() == 0:
        model.eval()
        print("loss", step(), step())
        model.train()
dist.destroy_process_group()
