"""Each rank updates a part of the parameters and sends it to the others, except for the bias of the last layer."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class PartOfEachRank:
    def __init__(self, parameters, lr):
        self.parameters = list(parameters)
        self.mine = torch.optim.Adam(self.parameters[dist.get_rank() :: dist.get_world_size()], lr=lr)

    @torch.no_grad()
    def step(self):
        self.mine.step()  # expect: DD206 ranks last
        for number, parameter in enumerate(self.parameters[:-1]):
            dist.broadcast(parameter, number % dist.get_world_size())


dist.init_process_group("gloo")
layers = [nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)]
model = DistributedDataParallel(nn.Sequential(*layers))
optimizer = PartOfEachRank(model.parameters(), lr=0.01)
torch.manual_seed(dist.get_rank())
for _ in range(12):
    model.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
