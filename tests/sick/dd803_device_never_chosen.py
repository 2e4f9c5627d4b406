"""Nobody chose a GPU, so .cuda() means the first one on every rank."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
torch.manual_seed(dist.get_rank())
network = nn.Linear(4, 1).cuda()  # expect: DD803
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 4).cuda()).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
