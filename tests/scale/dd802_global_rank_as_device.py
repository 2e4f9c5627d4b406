"""The global rank selects the GPU, which is right on the first host only."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
torch.manual_seed(dist.get_rank())
torch.cuda.set_device(dist.get_rank())  # expect: DD802 ranks 8-
model = DistributedDataParallel(nn.Linear(4, 1).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4).cuda()).square().mean().backward()
    optimizer.step()
dist.destroy_process_group()
