"""Every rank gathers the predictions of all: 24 MiB of each, which 64 ranks make 1.5 GiB."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
everything = [None] * dist.get_world_size()
dist.all_gather_object(everything, bytes(24 << 20))  # expect: DD608
dist.destroy_process_group()
