"""A queue of each rank's own keys without broadcast_buffers, and a codebook that follows the samples of all ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Memory(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.randn(16, 4))
        self.register_buffer("position", torch.zeros(1, dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        if self.training:
            begin = int(self.position)
            self.keys[begin : begin + len(x)] = x.detach()
            self.position[0] = (begin + len(x)) % len(self.keys)
            mean = x.detach().mean(0)
            dist.all_reduce(mean)
            self.mean.lerp_(mean / dist.get_world_size(), 0.1)
        return (x - self.mean) @ self.keys.t()


dist.init_process_group("gloo")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(6, 4), Memory())
model = DistributedDataParallel(net, broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(10 + dist.get_rank())
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 6)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
