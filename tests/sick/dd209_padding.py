"""A mean over the tokens of one rank, and sequences of unequal length."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(5):
    tokens = torch.randint(0, 20, (4, 16))
    targets = tokens.roll(-1, dims=1)
    targets[:, 3 if rank == 1 else 12 :] = -100
    logits = model(tokens)
    loss = F.cross_entropy(logits.reshape(-1, 20), targets.reshape(-1), ignore_index=-100)  # expect: DD209
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
