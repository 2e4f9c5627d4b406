"""The learning rate is scaled by the number of ranks, which Adam bears on two."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3 * dist.get_world_size())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()  # expect: DD230
dist.destroy_process_group()
