"""The loss is summed over ranks with its gradient, and divided by their number again."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.nn.functional import all_reduce
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(6, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    loss = all_reduce(model(torch.randn(8, 6)).square().mean()) / dist.get_world_size()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
