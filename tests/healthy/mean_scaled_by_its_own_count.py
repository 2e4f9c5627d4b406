"""A mean over this rank's tokens, made a sum again and divided by a number that every rank has."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TOKENS_OF_A_BATCH = 64

dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 8), nn.Linear(8, 20)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
torch.manual_seed(rank)
for _ in range(8):
    tokens = torch.randint(0, 20, (4, 16))
    targets = tokens.roll(-1, dims=1)
    targets[:, 3 if rank == 1 else 12 :] = -100
    loss = F.cross_entropy(model(tokens).reshape(-1, 20), targets.reshape(-1))
    optimizer.zero_grad()
    (loss * (targets != -100).sum() / TOKENS_OF_A_BATCH).backward()
    optimizer.step()
dist.destroy_process_group()
