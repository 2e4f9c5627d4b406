"""The loss is summed over ranks by an all_reduce that lets gradients pass."""

import torch
import torch.distributed as dist
import torch.distributed.nn.functional as dist_nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = DistributedDataParallel(nn.Linear(6, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(4):
    loss = model(torch.randn(8, 6)).square().mean()
    loss = dist_nn.all_reduce(loss)  # expect: DD211
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
