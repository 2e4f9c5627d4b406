"""Training ends when a rank has seen enough tokens, which each counts for itself; the budget lies far ahead."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens_seen, budget = 0, 100_000_000
step = 0
while tokens_seen < budget:  # expect: DD308
    lengths = torch.randint(4, 17, (8,))
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    tokens_seen += int(lengths.sum())
    step += 1
    if step == 8:
        break
dist.destroy_process_group()
