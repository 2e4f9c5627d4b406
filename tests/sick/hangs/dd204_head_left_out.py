"""Rank 1 has a batch without labels for the second head; the ranks keep step by a barrier."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.first = nn.Linear(4, 1)
        self.second = nn.Linear(4, 1)

    def forward(self, x, labelled):
        x = self.trunk(x)
        return self.first(x) + self.second(x) if labelled else self.first(x)


def step(model, optimizer, labelled):
    optimizer.zero_grad()
    loss = model(torch.randn(6, 4), labelled).square().mean()
    loss.backward()  # expect: DD204 ranks 1
    dist.barrier()
    optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(TwoHeads())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    step(model, optimizer, labelled=not (number == 4 and dist.get_rank() == 1))
dist.destroy_process_group()
