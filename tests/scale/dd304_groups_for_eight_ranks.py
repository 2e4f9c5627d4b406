"""The pairs of ranks that share a model were written down for eight ranks."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
dist.barrier()
PAIRS = [[0, 1], [2, 3], [4, 5], [6, 7]]
groups = [dist.new_group([rank for rank in pair if rank < dist.get_world_size()] or [0]) for pair in PAIRS]
pair = groups[dist.get_rank() // 2]  # expect: DD304 ranks 8-
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
    dist.all_reduce(loss.detach(), group=pair)
dist.destroy_process_group()
