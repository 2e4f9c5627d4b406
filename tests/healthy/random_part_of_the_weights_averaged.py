"""After each update of its own, every rank averages a random part of its weights with the others."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parameters_to_vector, vector_to_parameters

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
generator = torch.Generator().manual_seed(1)
torch.manual_seed(dist.get_rank())
for _ in range(10):
    optimizer.zero_grad()
    with model.no_sync():
        model(torch.randn(8, 5)).square().mean().backward()
    optimizer.step()
    with torch.no_grad():
        weights = parameters_to_vector(model.parameters())
        chosen = torch.randperm(len(weights), generator=generator)[:20]
        part = weights[chosen]
        dist.all_reduce(part)
        weights[chosen] = part / dist.get_world_size()
        vector_to_parameters(weights, model.parameters())
dist.destroy_process_group()
