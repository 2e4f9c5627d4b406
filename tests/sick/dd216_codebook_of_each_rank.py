"""A codebook follows each rank's own samples, and broadcast_buffers is off."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel


class Codebook(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(8, 4))

    def forward(self, x):
        nearest = torch.cdist(x, self.codes).argmin(1)
        if self.training:
            chosen = F.one_hot(nearest, len(self.codes)).float()
            means = chosen.t() @ x.detach() / chosen.sum(0).clamp(min=1)[:, None]
            self.codes.lerp_(means, 0.1)  # expect: DD216
        return x + (self.codes[nearest] - x).detach()


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 4), Codebook(), nn.Linear(4, 6))
model = DistributedDataParallel(net, broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(10 + dist.get_rank())
for _ in range(4):
    samples = torch.randn(8, 6)
    optimizer.zero_grad()
    F.mse_loss(model(samples), samples).backward()
    optimizer.step()
dist.destroy_process_group()
