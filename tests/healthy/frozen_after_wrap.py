"""Parts that are frozen, or left out, long after the wrap: find_unused_parameters looks needless in the first steps."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.head, self.auxiliary = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x, auxiliary):
        x = self.trunk(x).relu()
        return self.head(x) + self.auxiliary(x) if auxiliary else self.head(x)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(TwoHeads(), find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(36):
    if step == 24:
        model.module.trunk.requires_grad_(False)
    optimizer.zero_grad()
    model(torch.randn(8, 4), auxiliary=step < 12).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
