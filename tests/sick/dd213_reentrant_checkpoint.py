"""One block is checkpointed twice, reentrantly."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(4, 4)
        self.block = nn.Linear(4, 4)

    def forward(self, x):
        x = self.enter(x)
        for _ in range(2):
            x = checkpoint(self.block, x, use_reentrant=True)
        return x


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(Recurrent())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()  # expect: DD213
    optimizer.step()
