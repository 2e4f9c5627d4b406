"""Statistics are broadcast by hand between a forward and its backward."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)
        self.register_buffer("scale", torch.ones(6))

    def forward(self, x):
        return self.linear(x) * self.scale


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(Scaled(), broadcast_buffers=False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for _ in range(3):
    loss = model(torch.randn(16, 6)).square().mean()
    for buffer in model.module.buffers():
        of_rank_0 = buffer.clone()
        dist.broadcast(of_rank_0, src=0)
        buffer.copy_(of_rank_0)
    optimizer.zero_grad()
    loss.backward()  # expect: DD215
    optimizer.step()
