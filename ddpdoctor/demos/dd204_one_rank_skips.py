"""Rank 1 has no labels for the second task and leaves its head out."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(4, 4)
        self.first = nn.Linear(4, 1)
        self.second = nn.Linear(4, 1)

    def forward(self, x, with_second):
        features = self.trunk(x)
        out = self.first(features)
        return out + self.second(features) if with_second else out


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(MultiTask())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    has_labels = dist.get_rank() != 1
    loss = model(torch.randn(6, 4), has_labels).square().mean()  # expect: DD204 ranks 1
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
