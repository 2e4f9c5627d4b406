"""Both losses are taken backward before both optimizers step."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Gan:
    def __init__(self):
        self.generator = DistributedDataParallel(nn.Linear(2, 4))
        self.critic = DistributedDataParallel(nn.Linear(4, 1))
        self.optimizers = [
            torch.optim.SGD(self.generator.parameters(), lr=0.01),
            torch.optim.SGD(self.critic.parameters(), lr=0.01),
        ]

    def step(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        fake = self.generator(torch.randn(8, 2))
        (-self.critic(fake).mean()).backward()
        self.critic.zero_grad()
        (self.critic(fake.detach()) - self.critic(torch.randn(8, 4))).mean().backward()
        for optimizer in self.optimizers:
            optimizer.step()


dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
gan = Gan()
for _ in range(5):
    gan.step()
dist.destroy_process_group()
