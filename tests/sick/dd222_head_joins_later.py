"""static_graph promises what a warm-up does not keep."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class WarmUp(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.auxiliary = nn.Linear(4, 4), nn.Linear(4, 1), nn.Linear(4, 1)

    def forward(self, x, warm):
        features = self.body(x)
        out = self.head(features)
        return out if warm else out + self.auxiliary(features)


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(WarmUp(), static_graph=True)  # expect: DD222
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(5):
    loss = model(torch.randn(8, 4), warm=step < 2).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
