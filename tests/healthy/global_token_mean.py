"""Unequal numbers of tokens, divided by their global mean: once as a sum, once as a rescaled mean."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for step in range(6):
    tokens = torch.randint(0, 20, (4, 16))
    targets = tokens.roll(-1, dims=1)
    targets[:, 3 if rank == 1 else 12 :] = -100
    logits, targets = model(tokens).reshape(-1, 20), targets.reshape(-1)
    count = (targets != -100).sum()
    total = count.clone()
    dist.all_reduce(total)
    if step % 2:
        loss = F.cross_entropy(logits, targets, reduction="sum") * size / total
    else:
        loss = F.cross_entropy(logits, targets) * count * size / total
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
